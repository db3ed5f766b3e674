"""The wheel contains libfreshet_replica.so, which CMake builds from the source tree around this folder. FRESHET_BUILD names a build folder to use; without it one is
made below build/. The library needs what README.md lists for it (OpenBLAS, libyaml, libcrypto) from the system, so the wheel is for the distribution it was made on."""
import os
import pathlib
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

SOURCE = pathlib.Path(__file__).resolve().parents[2]


class BuildLibrary(build_py):
    def run(self):
        super().run()
        folder = pathlib.Path(os.environ.get("FRESHET_BUILD") or pathlib.Path("build/cmake").resolve())
        if not (folder / "CMakeCache.txt").exists():
            subprocess.run(["cmake", "-S", SOURCE, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF"], check=True)
        subprocess.run(["cmake", "--build", folder, "--target", "freshet_replica", "--parallel"], check=True)
        shutil.copyfile(folder / "libfreshet_replica.so", pathlib.Path(self.build_lib, "freshet", "libfreshet_replica.so"))


class Platform(Distribution):
    def has_ext_modules(self):
        return True  # a wheel of this platform


def tags():
    """The wheel holds no extension of an interpreter: any Python 3 of this platform can use it."""
    try:
        from wheel.bdist_wheel import bdist_wheel
    except ImportError:
        from setuptools.command.bdist_wheel import bdist_wheel

    class AnyPython(bdist_wheel):
        def get_tag(self):
            return ("py3", "none", super().get_tag()[2])
    return AnyPython


setup(cmdclass={"build_py": BuildLibrary, "bdist_wheel": tags()}, distclass=Platform)
