"""The delta topic on a real Kafka: the cases of unit_exporter_kafka, which a plain unit run skips for want of a broker; none may be skipped here."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403


def main():
    with Kafka() as kafka:
        done = subprocess.run([BUILD / "tests/unit/unit_exporter_kafka"], env={**os.environ, "FRESHET_KAFKA": kafka.address}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
    passed = re.search(r"PASSED\D*(\d+) test", done.stdout)
    if done.returncode != 0 or "SKIPPED" in done.stdout or not passed:
        print(done.stdout[-12000:])
        raise AssertionError(f"unit_exporter_kafka: exit {done.returncode}")
    print(f"{passed.group(1)} passed, 0 failed")


main()
