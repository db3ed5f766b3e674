"""Id -> key by docs/formats/samples.md, "Ids and keys" alone, without Freshet's code."""
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


def seed_of(namespace, key_seed=None):
    """The seed of a namespace. `key_seed` is what the configuration says: a positive 64-bit integer, quoted or not, is taken as it is, any other text as its XXH3."""
    text = "" if key_seed is None else str(key_seed)
    whole = re.fullmatch("[1-9][0-9]{0,19}", text, re.ASCII) and int(text) <= MASK
    number = 0 if key_seed is None else int(text) if whole else xxhash.xxh3_64_intdigest(text.encode())
    return xxhash.xxh3_64_intdigest(namespace.encode(), number)


def key_of(identity, namespace, raw=False, key_seed=None):
    """The key of an id: fmix64(v xor seed) of an integer, XXH3 with the seed of a string. A canonical decimal string is taken as the integer, unless `raw`."""
    seed = seed_of(namespace, key_seed)
    if isinstance(identity, str):
        canonical = not raw and re.fullmatch("0|-?[1-9][0-9]{0,19}", identity, re.ASCII) and -(1 << 63) <= int(identity) < 1 << 64
        if not canonical:
            return xxhash.xxh3_64_intdigest(identity.encode("utf-8", "surrogatepass"), seed)
    return fmix64((int(identity) & MASK) ^ seed)


def cross_of(parts, namespace, key_seed=None):
    """The key of a cross: the keys of the ids of its slots, folded in the order of the slots."""
    key = seed_of(namespace, key_seed)
    for part in parts:
        key = fmix64(key ^ part)
    return key
