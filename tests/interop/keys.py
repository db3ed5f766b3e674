"""Id -> key by DESIGN section 6 alone, without Freshet's code."""
import re

import xxhash

MASK = (1 << 64) - 1


def fmix64(k):
    """MurmurHash3's 64-bit finalizer."""
    k ^= k >> 33
    k = k * 0xff51afd7ed558ccd & MASK
    k ^= k >> 33
    k = k * 0xc4ceb9fe1a85ec53 & MASK
    return k ^ k >> 33


def key_of(identity, namespace, raw=False):
    """Integers through fmix64(v xor seed), strings through XXH3 with the seed; a canonical decimal string is the integer unless `raw`."""
    seed = xxhash.xxh3_64_intdigest(namespace.encode())
    if isinstance(identity, str):
        canonical = not raw and re.fullmatch("0|-?[1-9][0-9]{0,19}", identity, re.ASCII) and -(1 << 63) <= int(identity) < 1 << 64
        if not canonical:
            return xxhash.xxh3_64_intdigest(identity.encode("utf-8", "surrogatepass"), seed)
    return fmix64((int(identity) & MASK) ^ seed)


def cross_of(parts, namespace):
    """The keys of the crossed slots' ids, folded in the order of the slots."""
    key = xxhash.xxh3_64_intdigest(namespace.encode())
    for part in parts:
        key = fmix64(key ^ part)
    return key
