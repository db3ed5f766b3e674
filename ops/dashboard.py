#!/usr/bin/env python3
"""Grafana's dashboard, made from the list of series in the source code, and a check of all files here that name series.

    ops/dashboard.py             writes grafana/freshet.json
    ops/dashboard.py --check     compares it; checks the names of series, the runbook's sections and the tests of the alerts
    ops/dashboard.py --list      prints the series: kind, name, help
    ops/dashboard.py --queries   prints the dashboard's queries, a line each

The panels of OVERVIEW are chosen by hand: what an operator looks at first, and values beside their limits. Every series that is in none of them has a panel of
its own below, in the row of ROWS whose pattern is the first to match its name. So a new series is in the dashboard as soon as this is run again."""
import json
import pathlib
import re
import sys

OPS = pathlib.Path(__file__).resolve().parent
ROOT = OPS.parent
DASHBOARD = OPS / "grafana/freshet.json"
RULES = [OPS / "prometheus/recording.yml", OPS / "prometheus/alerts.yml"]
TESTS = OPS / "prometheus/alerts_test.yml"
# The list of series, and the two lists of counters that have a series in each row (metrics/series.h).
LISTS = {"metrics/include/metrics/series.h": "X", "ingest/include/ingest/positions.h": "TERM", "trainer/include/trainer/section.h": "COUNTER"}

SELECTOR = '{model=~"$model", instance=~"$instance"}'
# Title, unit, queries with legends. @ stands for the selector of the dashboard's variables.
OVERVIEW = [
    ("Samples trained a second", "short", [("instance:freshet_samples_trained:rate5m@", "{{model}}")]),
    ("Lag, and age of what was published last", "s", [("freshet_lag_seconds@", "lag"), ("instance:freshet_last_published:age_seconds@", "published")]),
    ("From the topic to the replicas", "s", [("instance_stage:freshet_arrival_age_seconds:p50_5m@", "{{stage}} p50"), ("instance_stage:freshet_arrival_age_seconds:p99_5m@", "{{stage}} p99")]),
    ("State: 1 is well", "short", [("freshet_live@", "live"), ("freshet_ready@", "ready"), ("freshet_connected@", "connected"), ("1 - freshet_publishing_held@", "publishing"),
                                      ("freshet_recovery_progress@", "recovered")]),
    ("Degraded or paused", "short", [("freshet_degraded@ == 1", "degraded: {{source}}"), ("freshet_paused@ == 1", "paused: {{reason}}")]),
    ("Alerts", "short", [('count by (alertname) (ALERTS{alertstate="firing", alertname=~"Freshet.*"})', "{{alertname}}")]),
    ("AUC", "percentunit", [("freshet_auc@", "{{task}} {{half_life}}")]),
    ("Calibration", "short", [("freshet_calibration@", "{{task}} {{half_life}}")]),
    ("Log loss", "short", [("freshet_logloss@", "{{task}} {{half_life}}")]),
    ("Memory and its limit", "bytes", [("process_resident_memory_bytes@", "process"), ("freshet_store_bytes@", "tables"), ("freshet_memory_limit_bytes@", "memory_limit")]),
    ("Journal and its limit", "bytes", [("freshet_journal_bytes@", "journal"), ("freshet_journal_max_bytes@", "journal_max"), ("freshet_unfolded_bytes@", "unfolded"),
                                           ("freshet_unfolded_max_bytes@", "unfolded_max")]),
    ("Disk", "bytes", [("freshet_disk_free_bytes@", "free"), ("freshet_cold_bytes@", "cold store")]),
    ("Outbox and its limit", "bytes", [("freshet_delta_waiting_bytes@", "waiting"), ("freshet_delta_in_flight_bytes@", "in flight"), ("freshet_delta_backlog_max_bytes@", "backlog_max")]),
    ("Open epoch and its limit", "bytes", [("freshet_dirty_bytes@", "changes"), ("freshet_epoch_max_bytes@", "epoch_bytes_max")]),
    ("Replicas that acknowledge", "short", [("freshet_replicas@", "known"), ("freshet_replicas_silent@", "silent"), ("freshet_replicas_starting@", "starting")]),
    ("The slowest replica", "s", [("freshet_replica_slowest_freshness_seconds@", "its newest sample"), ("freshet_replica_slowest_cut_age_seconds@", "its epoch"),
                                  ("instance:freshet_last_published:age_seconds@", "published")]),
    ("Epochs that the slowest replica lacks", "short", [("freshet_replica_slowest_epochs_behind@", "{{model}}")]),
    ("Descriptors and their limit", "short", [("process_open_fds@", "open"), ("process_max_fds@", "limit")]),
]
ROWS = [
    ("Stream", r"freshet_(record|dead_letter|ingest|ring|partition|unknown|excess|slot|samples_(decoded|skipped)|connected|lag)"),
    ("Training", r"freshet_(samples|batch|step|task|loss$|watermark|phase|device|exchange)"),
    ("Predictions", r"freshet_(auc|gauc|mse|served|positive|prediction|calibration|logloss)"),
    ("Tables", r"freshet_(rows|pending|occurrences|cold)"),
    ("Epochs, deltas, copies", r"freshet_(epoch|cut|append|durable|publish|fold|last|delta|replica|hps|snapshot|savepoint|freshness|arrival)"),
    ("Process", r"freshet_(build|thread|log|http)|process_"),
]
UNITS = {"_seconds": "s", "_bytes": "bytes", "_seconds_total": "s", "_bytes_total": "Bps"}


def series():
    """name -> (kind, help) of every series, in the order of the lists."""
    found = {}
    for path, macro in LISTS.items():
        text = re.sub(r"\\\n", " ", (ROOT / path).read_text())
        kinds = r"(\w+),\s*" if macro == "X" else "()"
        for kind, name, words in re.findall(rf'\b{macro}\(\w+,\s*{kinds}"(\w+)",\s*((?:"[^"]*"\s*)+)\)', text):
            found[name] = (kind or "COUNTER", "".join(re.findall(r'"([^"]*)"', words)))
    return found


def recorded():
    return set(re.findall(r"^ *- record: (\S+)$", RULES[0].read_text(), re.M))


# ---- the dashboard ----

def panel(place, title, unit, queries, help_text="", below=0):
    """The panel at a place, counted from the left and the top, three in a line."""
    source = {"type": "prometheus", "uid": "${source}"}
    return {"type": "timeseries", "title": title, "description": help_text, "datasource": source, "gridPos": {"x": place % 3 * 8, "y": below + place // 3 * 7, "w": 8, "h": 7},
            "fieldConfig": {"defaults": {"unit": unit, "custom": {"fillOpacity": 5, "showPoints": "never"}}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
            "targets": [{"refId": chr(65 + i), "expr": expr, "legendFormat": legend} for i, (expr, legend) in enumerate(queries)]}


def own_panel(name, kind):
    """Unit and queries of a series that has a panel of its own."""
    unit = next((UNITS[end] for end in sorted(UNITS, key=len, reverse=True) if name.endswith(end)), "short")
    if name.endswith("_timestamp_seconds"):
        return "s", [(f"time() - {name}{SELECTOR}", "__auto")]
    if kind in ("COUNTER", "SECONDS"):
        return "percentunit" if kind == "SECONDS" else unit, [(f"rate({name}{SELECTOR}[$__rate_interval])", "__auto")]
    if kind == "HISTOGRAM":
        by = "le, instance, model" + (", stage" if "age_seconds" in name or "freshness" in name else "")
        return unit, [(f"histogram_quantile({q}, sum by ({by}) (rate({name}_bucket{SELECTOR}[$__rate_interval])))", f"p{q[2:]:0<2}" + (" {{stage}}" if "stage" in by else "")) for q in ("0.5", "0.99")]
    return unit, [(f"{name}{SELECTOR}", "__auto")]


def variable(name, query):
    source = {"type": "prometheus", "uid": "${source}"}
    return {"name": name, "type": "query", "datasource": source, "query": query, "refresh": 2, "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"text": "All", "value": "$__all"}}


def dashboard(listed):
    panels = []
    for title, unit, queries in OVERVIEW:
        panels.append(panel(len(panels), title, unit, [(expr.replace("@", SELECTOR), legend) for expr, legend in queries]))
    shown = names_of(target["expr"] for one in panels for target in one["targets"])
    rest = {name: next((title for title, pattern in ROWS if re.match(pattern, name)), "Others") for name in listed if name not in shown}
    top = (len(OVERVIEW) + 2) // 3 * 7
    for title in [*(title for title, _ in ROWS), "Others"]:
        names = [name for name in listed if rest.get(name) == title]
        if names:
            inner = [panel(place, name, *own_panel(name, listed[name][0]), listed[name][1], top + 1) for place, name in enumerate(names)]
            panels.append({"type": "row", "title": title, "collapsed": True, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}, "panels": inner})
            top += 1
    every = [inner for one in panels for inner in [one, *one.get("panels", [])]]
    for number, one in enumerate(every, 1):
        one["id"] = number
    return {"title": "Freshet", "uid": "freshet", "tags": ["freshet"], "schemaVersion": 37, "version": 1, "editable": True, "refresh": "10s",
            "time": {"from": "now-3h", "to": "now"}, "panels": panels, "annotations": {"list": []},
            "templating": {"list": [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                                    variable("model", "label_values(freshet_build_info, model)"),
                                    variable("instance", 'label_values(freshet_build_info{model=~"$model"}, instance)')]}}


def targets(board):
    for one in board["panels"]:
        for inner in [one, *one.get("panels", [])]:
            yield from (target["expr"] for target in inner.get("targets", []))


# ---- the check ----

def names_of(texts):
    """What names a series or a recorded rule in queries, without labels' values."""
    plain = " ".join(re.sub(r'"[^"]*"', "", text) for text in texts)
    return set(re.findall(r"(?<![\w:])(?:\w+:)*(?:freshet|process)_\w+(?::\w+)*|(?<![\w:])\w+:freshet_\w+(?::\w+)*", plain))


def headings(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.+)$", text, re.M)}


def problems(listed, board):
    histograms = {name for name, (kind, _) in listed.items() if kind == "HISTOGRAM"}
    known = set(listed) - histograms | recorded() | {name + end for name in histograms for end in ("_bucket", "_sum", "_count")}
    rules, tests = "".join(path.read_text() for path in RULES), TESTS.read_text()
    queries = {"grafana/freshet.json": list(targets(board)), "the rules": [rules], TESTS.name: re.findall(r"series: '([^']*)'", tests)}
    for where, texts in queries.items():
        yield from (f"ops: {where}: no series {name}" for name in sorted(names_of(texts) - known))
    shown = names_of(queries["grafana/freshet.json"])
    yield from (f"ops: grafana/freshet.json does not show {name}" for name in listed if name not in shown and name + "_bucket" not in shown)
    if DASHBOARD.read_text() != rendered(board) + "\n":
        yield "ops: grafana/freshet.json is not what ops/dashboard.py writes: run it"
    alerts = re.split(r"^ +- alert: ", RULES[1].read_text(), flags=re.M)[1:]
    for alert in alerts:
        name = alert.split()[0]
        page, _, section = next(iter(re.findall(r"^ +runbook: (\S+)$", alert, re.M)), "").partition("#")
        if not page or section not in headings(ROOT / page):
            yield f"ops: {name}: its runbook is no section: {page}#{section}"
        elif f"`{name}`" not in (ROOT / page).read_text():
            yield f"ops: {name}: {page} does not name it"
        if f'alertname="{name}"' not in tests:
            yield f"ops: {name}: no case of {TESTS.name} lets it fire"
    if len(listed) < 100 or len(alerts) < 20:
        yield f"ops: {len(listed)} series and {len(alerts)} alerts are too few: the lists are written in another form"


def rendered(part):
    """A dashboard or a panel as JSON, each panel inside it on a line of its own."""
    text = json.dumps({key: value for key, value in part.items() if key != "panels"}, ensure_ascii=False)
    return text[:-1] + ', "panels": [\n' + ",\n".join(map(rendered, part["panels"])) + "\n]}" if part.get("panels") else text


def main():
    listed = series()
    board = dashboard(listed)
    if sys.argv[1:] == ["--list"]:
        print("\n".join(f"{kind.lower()} {name} {words}" for name, (kind, words) in listed.items()))
    elif sys.argv[1:] == ["--queries"]:
        print("\n".join(targets(board)))
    elif sys.argv[1:] == ["--check"]:
        found = list(problems(listed, board))
        print("\n".join(found + [f"{len(listed)} series, {len(found)} problems"]))
        return 1 if found else 0
    elif not sys.argv[1:]:
        DASHBOARD.write_text(rendered(board) + "\n")
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
