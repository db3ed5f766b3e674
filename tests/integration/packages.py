"""What ops/ has for installing is what the programs do: messages to a service manager, the unit, the image's health check, man pages, maintainer scripts, and
the manifests of Kubernetes and compose, whose embedded configurations, options, ports, paths and times are checked. Nothing here needs Kafka or root; packages
themselves are built and installed by tests/packages_deb, by hand.

Cases: the_daemon_reports_to_the_service_manager, the_unit_is_hardened, man_pages_have_every_option, maintainer_scripts_are_scripts, kubernetes, compose.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403

OPS = SOURCE / "ops"
EXPOSURE_MAX = 2.0  # of `systemd-analyze security`: 0 is best, 10 worst
CONFIG = SOURCE / "tests/integration/operating.yaml"


def load_yaml(path):
    """All documents of a file; the system's Python may have the module that the environment lacks."""
    program = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)"
    for python in (sys.executable, "/usr/bin/python3"):
        done = subprocess.run([python, "-c", program, path], capture_output=True, text=True)
        if done.returncode == 0:
            return json.loads(done.stdout)
    raise AssertionError(f"{path} is no YAML, or no Python here has PyYAML: {done.stderr}")


def program(name, *arguments):
    path = BUILD / {"freshetd": "daemon/freshetd", "freshet": "tool/freshet"}[name]
    return subprocess.run([path, *arguments], capture_output=True, text=True)


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(m?s|m|h|)", str(text)).groups()
    return int(number) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "": 1}[unit]


def drain_timeout(config):
    return seconds(re.search(r"drain_timeout: (\w+)", program("freshetd", "--config", str(config), "--print-config").stdout).group(1))


class Cases:
    def __init__(self, work):
        self.work = work

    def start(self, **options):
        """A daemon that reads a file of samples; its brokers do not answer."""
        samples, config = self.work.path / "samples.jsonl", self.work.path / "files.yaml"
        samples.write_text("".join(json.dumps({"t": 1767225600000 + i, "y": {"click": i % 2}, "f": {"sample": i, "user_id": i % 50, "price": 1.0}}) + "\n" for i in range(2000)))
        config.write_text(re.sub(r"^ingest: .*$", 'ingest: {brokers: "127.0.0.1:1", topic: none, batch_wait: 5ms, files: [%s]}' % samples, CONFIG.read_text(), flags=re.M))
        return self.work.daemon(config, self.work.path / "log", [f"state_dir={self.work.path / 'state'}", "export.drain_timeout=1s"], **options)

    def the_daemon_reports_to_the_service_manager(self):
        name = str(self.work.path / "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(name)
            manager.settimeout(PATIENCE)
            daemon = self.start(env={"NOTIFY_SOCKET": name})
            messages = []

            def receive_until(word):
                while not (messages and word in messages[-1]):
                    messages.append(manager.recv(4096).decode().split("\n"))
            receive_until("READY=1")
            assert daemon.get("/healthz")[0] == 200 and "event=recovered" in daemon.log()
            assert messages[0] == ["STATUS=recovering", "EXTEND_TIMEOUT_USEC=30000000"] and ["WATCHDOG=1"] not in messages, messages
            receive_until("WATCHDOG=1")
            receive_until("WATCHDOG=1")
            address = daemon.port
            health = [OPS / "container/healthcheck", str(address)]
            assert subprocess.run(health, capture_output=True).returncode == 0
            daemon.process.send_signal(signal.SIGTERM)
            receive_until("STOPPING=1")
            receive_until("EXTEND_TIMEOUT_USEC=30000000")
            assert messages[-1][0] == "WATCHDOG=1"  # a drain is watched, too
            daemon.wait_exit()  # 75: there is no broker to publish to
            assert subprocess.run(health, capture_output=True).returncode != 0

    def the_unit_is_hardened(self):
        text = (OPS / "debian/freshetd@.service").read_text()
        stop = seconds(re.search(r"^TimeoutStopSec=(\w+)$", text, re.M).group(1))
        assert stop > drain_timeout(SOURCE / "conf/freshet.yaml") + 5, "the unit ends the daemon before its drain does"
        watchdog = seconds(re.search(r"^WatchdogSec=(\w+)$", text, re.M).group(1))
        assert watchdog >= 10 and "Type=notify" in text and "RestartPreventExitStatus=2 3" in text
        if not shutil.which("systemd-analyze"):
            print("the unit is not analyzed: no systemd-analyze")
            return
        unit = self.work.path / "freshetd@ctr.service"
        unit.write_text(text.replace("/usr/bin/freshetd", str(BUILD / "daemon/freshetd")))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
        assert done.returncode == 0 and not [line for line in done.stderr.splitlines() if "freshetd@" in line], done.stderr
        done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", unit], capture_output=True, text=True)
        exposure = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout).group(1))
        assert exposure <= EXPOSURE_MAX, done.stdout
        print(f"exposure {exposure}")

    def man_pages_have_every_option(self):
        for name, section in (("freshetd", 8), ("freshet", 1)):
            page = self.work.path / f"{name}.{section}"
            subprocess.run(["sh", SOURCE / "cmake/man_page.sh", BUILD / {"freshetd": "daemon/freshetd", "freshet": "tool/freshet"}[name], name, str(section), "0", page], check=True)
            text = page.read_text().replace("\\-", "-")
            shown = program(name, "--help").stdout
            commands = re.findall(r"^  ([a-z]+) ", shown, re.M)
            shown += "".join(program(name, command, "--help").stdout for command in commands or ["init"])
            options = set(re.findall(r"^  (--[a-z-]+)", shown, re.M))
            assert len(options) >= 12
            missing = [option for option in options if not re.search(rf"^\.B {option}\b", text, re.M)]
            assert not missing, f"{page.name} lacks {missing}"
            assert all(f".SH {command.upper()}\n" in text for command in commands)
            if shutil.which("man"):
                done = subprocess.run(["man", "--warnings", "-l", "-Tutf8", page], capture_output=True, text=True, env={**os.environ, "MANPAGER": "cat"})
                assert done.returncode == 0 and not done.stderr, done.stderr

    def maintainer_scripts_are_scripts(self):
        for name in ("postinst", "prerm", "postrm"):
            path = OPS / "debian" / name
            subprocess.run(["sh", "-n", path], check=True)
            assert os.access(path, os.X_OK) and "set -e" in path.read_text()
        assert "rm -r" not in re.sub(r'echo "[^"]*"', "", (OPS / "debian/postrm").read_text()), "a purge leaves the state"
        # Of dpkg's calls, those that do nothing outside systemd can be made here.
        for words in (["postrm", "upgrade"], ["prerm", "upgrade"], ["postinst", "abort-remove"]):
            subprocess.run(["sh", OPS / "debian" / words[0], *words[1:]], check=True)

    def check(self, text, *arguments):
        config = self.work.path / "embedded.yaml"
        config.write_text(text)
        done = program("freshetd", "--config", str(config), "--check", *arguments)
        assert done.returncode == 0 and done.stdout.endswith(": ok\n"), done.stdout + done.stderr
        return config

    def kubernetes(self):
        documents = {document["kind"]: document for document in load_yaml(OPS / "kubernetes/freshet.yaml")}
        pod = documents["StatefulSet"]["spec"]["template"]["spec"]
        container = pod["containers"][0]
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        (name, text), = documents["ConfigMap"]["data"].items()
        assert container["args"] == ["--config", f"/etc/freshet/{name}"] and mounts["/etc/freshet"] == "configuration"
        config = self.check(text)
        port = container["ports"][0]["containerPort"]
        assert f'listen: "0.0.0.0:{port}"' in text and documents["Service"]["spec"]["ports"][0]["port"] == port
        claim = documents["StatefulSet"]["spec"]["volumeClaimTemplates"][0]["metadata"]["name"]
        state_dir = re.search(r"^state_dir: (\S+)$", text, re.M).group(1)
        assert any(state_dir.startswith(path + "/") and volume == claim for path, volume in mounts.items())
        assert pod["terminationGracePeriodSeconds"] > drain_timeout(config) + 5
        assert f"--uid {pod['securityContext']['runAsUser']} " in (OPS / "container/Containerfile").read_text()
        labels = documents["StatefulSet"]["spec"]["selector"]["matchLabels"]
        assert labels == documents["Service"]["spec"]["selector"] == documents["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
        daemon = self.start()
        for probe, codes in (("startupProbe", {200}), ("livenessProbe", {200}), ("readinessProbe", {200, 503})):
            path = container[probe]["httpGet"]["path"]
            assert container[probe]["httpGet"]["port"] == container["ports"][0]["name"] and daemon.get(path)[0] in codes, path
        daemon.kill()

    def compose(self):
        services = load_yaml(OPS / "compose/compose.yaml")[0]["services"]
        command = services["freshetd"]["command"]
        self.check((SOURCE / "conf/quickstart.yaml").read_text(), *command[command.index("--set"):])
        assert seconds(services["freshetd"]["stop_grace_period"]) > drain_timeout(SOURCE / "conf/quickstart.yaml") + 5
        done = program("freshet", *services["clicks"]["command"], "--help")
        assert done.returncode == 0, done.stderr
        for name, service in services.items():
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                assert not source.startswith(".") or (OPS / "compose" / source).exists(), f"{name}: {source}"
        prometheus = load_yaml(OPS / "compose/prometheus.yml")[0]
        target = prometheus["scrape_configs"][0]["static_configs"][0]["targets"][0]
        hosts = next(word for word in command if word.startswith("metrics.hosts="))
        assert target == "freshetd:8080" and "[freshetd]" in hosts and "metrics.listen=0.0.0.0:8080" in command
        assert all((OPS / "prometheus" / pathlib.Path(name).name).exists() for name in prometheus["rule_files"])
        source, = load_yaml(OPS / "compose/grafana/datasources/prometheus.yaml")[0]["datasources"]
        folder, = load_yaml(OPS / "compose/grafana/dashboards/freshet.yaml")[0]["providers"]
        assert source["type"] == "prometheus" and any(volume.split(":")[1] == folder["options"]["path"] for volume in services["grafana"]["volumes"])
        if shutil.which("promtool"):
            here = self.work.path / "prometheus"
            shutil.copytree(OPS / "prometheus", here / "freshet")
            shutil.copy(OPS / "compose/prometheus.yml", here)
            subprocess.run(["promtool", "check", "config", here / "prometheus.yml"], check=True, stdout=subprocess.DEVNULL)


with Workspace() as test_work:
    run_cases(Cases(test_work), ["the_daemon_reports_to_the_service_manager", "the_unit_is_hardened", "man_pages_have_every_option", "maintainer_scripts_are_scripts",
                                 "kubernetes", "compose"])
