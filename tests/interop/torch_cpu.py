"""Installs PyTorch into this interpreter's environment for use on the CPU alone.

PyPI's package for Linux wants 3 GB of CUDA libraries that a CPU never calls, but the dynamic linker looks for them. Each gets an empty stand-in with the right name
and symbol versions; functions are looked up when first called (TORCH_USE_RTLD_GLOBAL=1 makes PyTorch load itself so), so none is missed. 0.54 GB are downloaded, 1.2 GB kept.
The version is that of torch.txt, or of the file named instead.
"""
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SITE = pathlib.Path(sysconfig.get_paths()["platlib"])
LAZY = ("libcaffe2_nvrtc.so", "libtorch_cuda_linalg.so")  # loaded when CUDA is used
DATA = {"libnvshmem_host.so.3": ("nvshmem_init", "nvshmem_selected_device_transport")}  # symbols whose address is taken at load


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], check=True, stdout=subprocess.PIPE, text=True, env={"LC_ALL": "C"}).stdout


def missing_libraries():
    """name -> symbol versions asked of it."""
    libraries = [path for path in (SITE / "torch/lib").glob("lib*.so*") if path.name not in LAZY]
    there = {path.name for folder in ("torch/lib", "nvidia/cu13/lib") for path in (SITE / folder).glob("lib*")}
    versions = {}
    for path in libraries:
        for name in re.findall(r"NEEDED\).*\[(lib(?:cu|nv|nccl)[^]]*)\]", readelf("-d", path)):
            if name not in there:
                versions.setdefault(name, set())
        name = None
        for line in readelf("-V", path).splitlines():
            name = (re.findall(r"File: (\S+)", line) or [name])[0]
            if name in versions:
                versions[name].update(re.findall(r"Name: (\S+)", line))
    return versions


def make_stand_in(name, versions, folder):
    with tempfile.TemporaryDirectory() as work:
        source, script = pathlib.Path(work, "empty.c"), pathlib.Path(work, "versions")
        source.write_text("".join(f"int {symbol};\n" for symbol in DATA.get(name, ())))
        script.write_text("".join(f"{version} {{ global: *; }};\n" for version in sorted(versions)))
        command = ["cc", "-shared", "-nostdlib", f"-Wl,-soname,{name}", "-o", folder / name, source]
        subprocess.run(command + ([f"-Wl,--version-script={script}"] if versions else []), check=True)


def main():
    wanted = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "torch.txt"
    version = re.search(r"^torch==(\S+)", wanted.read_text(), re.M).group(1)
    check = f"import torch; assert torch.__version__.startswith('{version}'); torch.ones(2, dtype=torch.float64, requires_grad=True).sum().backward()"
    check = [sys.executable, "-W", "ignore", "-c", check]
    environment = {"TORCH_USE_RTLD_GLOBAL": "1"}
    if subprocess.run(check, env=environment, stderr=subprocess.DEVNULL).returncode == 0:
        return
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-compile", "--no-cache-dir", "-r", wanted], check=True)
    folder = SITE / "nvidia/cu13/lib"
    for name, versions in missing_libraries().items():
        make_stand_in(name, versions, folder)
    subprocess.run(check, env=environment, check=True)


main()
