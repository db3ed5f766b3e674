"""The cases of unit_ingest_kafka, which a plain unit run skips for want of a broker, on a real Kafka; none may be skipped here."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403


def main():
    with Kafka() as kafka:
        done = subprocess.run([BUILD / "tests/unit/unit_ingest_kafka"], env={**os.environ, "FRESHET_KAFKA": kafka.address, "FRESHET_KAFKA_DIR": kafka.dir}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=280)
    if done.returncode != 0 or "SKIPPED" in done.stdout or "PASSED" not in done.stdout:
        print(done.stdout[-12000:])
        raise AssertionError(f"unit_ingest_kafka: exit {done.returncode}")
    passed = re.search(r"PASSED\D*(\d+) test", done.stdout).group(1)
    print(f"{passed} passed, 0 failed")


main()
