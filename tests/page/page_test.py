#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of a report in Debian's headless Chromium: tests/page/page_test.py BUILD_FOLDER [PICTURES]

Real keys, clicks and drags; the numbers of the page against those of `paoding report --format json`. PICTURES is a folder
for what the views look like. Prints one line a test, and how many passed; exits with 1 where one failed. Where there is no
Chromium (tools/deps.sh browser installs it) it says so, and ctest counts it as not run."""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from decimal import Decimal

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import Browser, find_browser  # noqa: E402

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "build"
PICTURES = sys.argv[2] if len(sys.argv) > 2 else None
CTRL, SHIFT = 2, 8


TRACES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "findings", "traces")
REAL = {"collected": "garbage_collected.fault.json.gz", "exact": "exact_products.fault.json.gz",
        "jax": "jax_batches_made_by_numpy.fault.xplane.pb.gz", "layers": "small_layers_one_by_one.fault.json.gz",
        "saved": "checkpoints_on_the_way.fault.json.gz"}


class Pages:
    """Recordings that build/paoding_tests writes, and real traces of programs with a fault, as pages and as JSON."""

    def __init__(self, folder):
        self.folder = folder
        for more in ({}, {"PAODING_PAGE_SPANS": "500000"}):  # so many that times are rounded
            subprocess.run([BUILD + "/paoding_tests", "--gtest_filter=PageRecordings.*", "--gtest_brief=1"], check=True,
                           env={**os.environ, "PAODING_PAGE_RECORDINGS": folder, **more}, stdout=subprocess.DEVNULL)
        recordings = {name[:-8]: os.path.join(folder, name) for name in os.listdir(folder)}
        for name, file in REAL.items():
            recordings[name] = os.path.join(TRACES, file)
        for name, recording in recordings.items():
            text = subprocess.run([BUILD + "/paoding", "report", recording, "--format", "json", "--html", self.path(name)],
                                  check=True, capture_output=True).stdout
            with open(os.path.join(folder, name + ".paoding.json"), "wb") as file:
                file.write(text)

    def chrome(self, name):
        """The same recording as the timeline for chrome://tracing, by another writer."""
        path = os.path.join(self.folder, name + ".json")
        subprocess.run([BUILD + "/paoding", "report", os.path.join(self.folder, name + ".paoding"), "--path", path],
                       check=True, stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            return json.load(file, parse_float=Decimal)["traceEvents"]

    def path(self, name):
        return os.path.join(self.folder, name + ".html")

    def json(self, name):
        with open(os.path.join(self.folder, name + ".paoding.json"), encoding="utf-8") as file:
            return json.load(file)


def cells(page, table):
    """The rows of the table that a caption names: the name, then the exact numbers of the cells that have one."""
    return page.run(f"""[...document.querySelectorAll("table")].filter((t) => t.caption && t.caption.textContent.trim() ===
      {json.dumps(table)})[0]?.querySelectorAll("tbody tr").values().map((row) => [row.cells[0].textContent,
      ...[...row.cells].slice(1).map((cell) => cell.dataset.value === undefined ? cell.textContent :
      Number(cell.dataset.value))]).toArray()""")


def same(found, wanted, what):
    assert found == wanted, f"{what}: {found!r}, wanted {wanted!r}"


# ---- the numbers ----

def numbers_are_those_of_the_json_report(page, pages):
    """To the nanosecond, as values and as printed text."""
    for name in ("training", "ranks", "times", "names"):
        report = pages.json(name)
        page.open(pages.path(name))
        wall = {row[0]: row[1] for row in cells(page, "Wall time")}
        overhead = report["overhead"]
        same(wall, {"Computation": overhead["computation_ns"], "Framework overhead": overhead["framework_ns"],
                    "Recording": overhead["recording_ns"], "Compiling": overhead["compile_ns"],
                    "Only your code": overhead["your_code_ns"], "Not seen": overhead["not_seen_ns"],
                    "Total": overhead["total_ns"]}, f"wall time of {name}")
        for budget in report["wall_time"]:
            if name == "names":
                continue  # they are shown with marks in place of what would move text
            found = {row[0]: row[1] for row in cells(page, "Wall time of " + budget["of"])}
            same(found, budget["parts_ns"], f"{budget['of']} of {name}")
        page.press("4")
        for number, section in enumerate(report["merged"] + report["threads"]):
            page.run(f"byId('ops-of').value = {number}; byId('ops-of').dispatchEvent(new Event('change'))")
            heads = page.run("[...document.querySelectorAll('#rows thead button')].map((b) => b.textContent)")
            keys = {"Total, ms": "total_ns", "CPU, ms": "cpu_ns", "GPU, ms": "gpu_ns", "Not in rows below, ms": "self_ns",
                    "Min., ms": "min_ns", "Max., ms": "max_ns", "Ave., ms": "average_ns"}
            shown = page.run("""[...document.querySelectorAll('#rows tbody tr:not(.beside)')].map((row) => [...row.cells].map((cell) =>
              [cell.textContent, cell.dataset.value]))""")
            same(len(shown), len(section["rows"]), f"rows of {name}")
            for cells_of, row in zip(shown, section["rows"]):
                for head, (text, value) in zip(heads, cells_of):
                    if head in keys:
                        same(int(value), row[keys[head]], f"{head} of {row['name']} in {name}")
                        same(round(float(text.lstrip("~")) * 1e6), row[keys[head]], f"{head} as text")
                    elif head == "Calls":
                        same(int(value), row["calls"], f"calls of {row['name']}")
            if number == 0 and name == "ranks":
                break


def spans_are_those_of_the_recording(page, pages):
    """Against Chrome's timeline, which another writer makes: names, times, causes, counters."""
    for name in ("training", "ranks", "times"):
        page.open(pages.path(name))
        events = pages.chrome(name)
        wanted = sorted((e["name"], int(e["ts"] * 1000), int(e.get("dur", 0) * 1000)) for e in events if e["ph"] in "Xi")
        found = page.run("""Array.from(timeline.trace.start, (start, i) => [timeline.trace.name(i), start,
          timeline.trace.duration[i]])""")
        same(sorted(map(tuple, found)), wanted, f"spans of {name}")
        starts = {(e["ph"], e["cat"], e["id"]): int(e["ts"] * 1000) for e in events if e["ph"] in "sf"}
        wanted = sorted((at, starts["f", "cause", key[2]]) for key, at in starts.items() if key[:2] == ("s", "cause"))
        found = page.run("""[...timeline.trace.causeOf || []].flatMap((cause, i) => cause < 0 ? [] :
          [[timeline.trace.start[cause], timeline.trace.start[i]]])""")
        same(sorted(map(tuple, found)), wanted, f"causes of {name}")
        wanted = sorted({(int(e["ts"] * 1000), e["args"]["bytes"]) for e in events if e["ph"] == "C"})
        found = page.run("timeline.trace.counters.flatMap((c) => [...c.times.map((t, k) => [t, c.values[k]]), "
                         "[timeline.trace.wall, c.values.at(-1)]])")
        same(sorted(set(map(tuple, found))), wanted, f"counters of {name}")


def rounded_times_are_near_and_said_to_be_rounded(page, pages):
    page.open(pages.path("long"))
    quantum = page.run("timeline.trace.quantum")
    assert quantum > 1, quantum
    assert f"rounded to {quantum} ns" in page.run("byId('foot').innerText")
    assert os.path.getsize(pages.path("long")) < 3 * page.run("timeline.trace.size")
    row = next(row for row in pages.json("long")["merged"][0]["rows"] if row["name"] == "read batch")
    calls, total, multiples = page.run("""(() => { const t = timeline.trace; let calls = 0, total = 0, all = true;
      for (let i = 0; i < t.size; ++i) { all &&= t.start[i] % t.quantum === 0 && t.duration[i] % t.quantum === 0;
        if (t.name(i) === "read batch") { ++calls; total += t.duration[i]; } } return [calls, total, all]; })()""")
    same((calls, multiples), (row["calls"], True), "calls, and times that are multiples")
    assert abs(total - row["total_ns"]) <= calls * quantum, (total, row)
    page.press("1")
    page.press("ArrowRight")
    assert "\u2248" in page.run("byId('details').innerText")


def sums_of_a_stretch_are_those_of_its_spans(page, pages):
    """Against sums over the whole recording, which the table of every name has by another way."""
    page.open(pages.path("training"), "timeline")
    page.run("timeline.select({from: 0, to: timeline.trace.wall, tracks: timeline.trace.tracks})")
    found = {row[0]: row[1:4] for row in cells(page, "Sums of the selection")}
    wanted = page.run("""(() => { const sums = {}, t = timeline.trace;
      for (let i = 0; i < t.size; ++i) { const s = sums[t.name(i)] ||= [0, 0]; s[0] += 1; s[1] += t.duration[i]; }
      return sums; })()""")
    same({name: row[:2] for name, row in found.items()}, wanted, "sums")
    report = pages.json("training")
    kernels = next(b for b in report["wall_time"] if b["of"].startswith("GPU"))["parts_ns"]["kernels"]
    page.run("""timeline.select({from: 0, to: timeline.trace.wall,
      tracks: timeline.trace.tracks.filter((track) => track.name === "stream 7")})""")
    total = sum(row[2] for row in cells(page, "Sums of the selection"))
    assert 0 < total <= kernels, (total, kernels)


# ---- keys, clicks and drags ----

def keys_move_and_zoom_the_timeline(page, pages):
    page.open(pages.path("training"))
    page.press("1")
    same(page.run("currentView()"), "timeline", "view")
    view = lambda: page.run("[timeline.from, timeline.to, timeline.trace.wall]")  # noqa: E731
    start, end, wall = view()
    same((start, end), (0, wall), "all is seen")
    for _ in range(6):
        page.press("w")
    zoomed = view()
    assert zoomed[1] - zoomed[0] < 0.2 * wall, zoomed
    page.press("d")
    moved = view()
    assert moved[0] > zoomed[0] and abs((moved[1] - moved[0]) - (zoomed[1] - zoomed[0])) < 1, (zoomed, moved)
    page.press("a")
    assert abs(view()[0] - zoomed[0]) < 2, (view(), zoomed)
    page.press("s")
    assert view()[1] - view()[0] > zoomed[1] - zoomed[0]
    page.press("r")
    same(view()[:2], [0, wall], "everything")
    page.wheel(700, 300, -400, CTRL)
    assert view()[1] - view()[0] < 0.5 * wall, view()
    page.press("f")
    same(view()[:2], [0, wall], "fit of nothing is everything")


def a_click_selects_what_is_there(page, pages):
    page.open(pages.path("training"), "timeline")
    x, y = page.run("""(() => { const t = timeline, i = t.trace.order[t.trace.tracks[0].rows[0].from + 3];
      const box = byId("canvas").getBoundingClientRect(), place = placeOf(t, i, t.scroller.scrollTop);
      return [box.left + (place.x + place.end) / 2, box.top + place.y + 8]; })()""")
    page.click(x, y)
    same(page.run("timeline.trace.name(timeline.selected)"), "step", "selected")
    details = page.run("byId('details').textContent")
    start, duration = page.run("[timeline.trace.start[timeline.selected], timeline.trace.duration[timeline.selected]]")
    for part in ("Calls", "40", page.run(f"exactTime({duration})"), page.run(f"exactTime({start})")):
        assert part in details, (part, details)
    page.press("f")
    same(page.run("timeline.from <= timeline.trace.start[timeline.selected] && timeline.to >= "
                  "timeline.trace.end(timeline.selected) && (timeline.to - timeline.from) < "
                  "1.2 * timeline.trace.duration[timeline.selected]"), True, "fitted")
    page.press("ArrowDown")
    same(page.run("timeline.trace.name(timeline.selected)"), "feed", "the first inside")
    page.press("ArrowUp")
    same(page.run("timeline.trace.name(timeline.selected)"), "step", "the span around")
    first = page.run("timeline.selected")
    page.press(".")
    page.press(",")
    same(page.run("timeline.selected"), first, "there and back")
    page.press("Escape")
    same(page.run("timeline.selected"), -1, "nothing")


def a_kernel_says_what_started_it_and_what_it_carries(page, pages):
    page.open(pages.path("training"), "timeline")
    page.run("timeline.goTo(timeline.trace.tracks.find((t) => t.name === 'stream 7').first + 5)")
    page.run("new Promise((done) => setTimeout(done, 100))")
    details = page.run("byId('details').innerText")
    for part in ("Started by", "Ran as", "k_", "registers per thread", "Scope", "decoder/block"):
        assert part in details, (part, details)
    started = page.run("timeline.trace.causeOf[timeline.selected]")
    same(page.run(f"[timeline.trace.kind({started}), timeline.trace.name({started}) === "
                  "timeline.trace.name(timeline.selected)]"), ["launch", True], "its launch")


def a_drag_selects_a_stretch(page, pages):
    page.open(pages.path("training"), "timeline")
    page.drag(500, 140, 800, 300)
    area = page.run("[timeline.area.from, timeline.area.to, timeline.area.tracks.length]")
    assert 0 < area[0] < area[1] and area[2] >= 2, area
    rows = cells(page, "Sums of the selection")
    assert rows and all(row[2] <= (area[1] - area[0]) * area[2] * 3 for row in rows), rows[:3]
    page.press("f")
    same(page.run("Math.abs(timeline.from - timeline.area.from) < 2"), True, "fits the stretch")
    page.resize(1280, 1600)
    page.settle()
    below = page.run("byId('canvas').getBoundingClientRect().top + timeline.height + 20")
    assert below < page.run("byId('scroller').getBoundingClientRect().bottom - 40"), "there is room below the tracks"
    page.drag(500, below, 800, below + 20)
    same(page.run("[timeline.area, timeline.selected]"), [None, -1], "where no track is")
    assert "Nothing is selected" in page.run("byId('details').innerText")
    page.resize(1280, 800)


def search_counts_dims_and_goes_on(page, pages):
    page.open(pages.path("training"))
    page.press("/")
    same(page.run("document.activeElement.id"), "search", "focus by slash")
    page.type("softmax")
    wanted = page.run("""[...timeline.trace.site].filter((s) => /softmax/.test(timeline.trace.strings[
      timeline.trace.sites.name[s]])).length""")
    found = page.run("byId('found').textContent")
    assert found.split(",")[0].replace("\u202f", "") == str(wanted), (found, wanted)
    page.press("Enter")
    same(page.run("[currentView(), timeline.trace.name(timeline.selected)]"), ["timeline", "softmax"], "first")
    first = page.run("timeline.trace.start[timeline.selected]")
    page.press("Enter")
    second = page.run("timeline.trace.start[timeline.selected]")
    assert second >= first, (first, second)
    page.press("Enter", SHIFT)
    same(page.run("timeline.trace.start[timeline.selected]"), first, "back")
    boxes = page.run("['search', 'found'].map((id) => byId(id).getBoundingClientRect()).map((b) => [b.left, b.right])")
    assert boxes[0][1] <= boxes[1][0], boxes  # the count is beside what was typed
    page.press("Escape")
    same(page.run("[timeline.matches, document.activeElement.id]"), [None, "scroller"], "ended")
    page.press("/")
    page.type("softmax")
    page.press("Enter")
    page.run("byId('scroller').focus()")
    same(page.run("[timeline.selected >= 0, Boolean(timeline.matches)]"), [True, True], "one of them is selected")
    page.press("Escape")
    same(page.run("[timeline.selected, timeline.matches, byId('search').value]"), [-1, None, ""], "both are ended")
    page.press("f", CTRL)
    same(page.run("document.activeElement.id"), "search", "focus by Ctrl-F")


def views_change_by_their_keys(page, pages):
    page.open(pages.path("training"))
    for key, view in zip("12340", ("timeline", "flame", "sandwich", "ops", "overview")):
        page.press(key)
        same(page.run("currentView()"), view, f"key {key}")
        same(page.run(f"byId('tab-{view}').getAttribute('aria-selected')"), "true", view)
    page.press("?")
    same(page.run("byId('help').open"), True, "help")
    page.press("Escape")
    same(page.run("byId('help').open"), False, "help closed")


def flame_graphs_add_up(page, pages):
    page.open(pages.path("training"))
    page.press("2")
    threads = page.run("""timeline.trace.tracks.filter((t) => t.device < 0).reduce((sum, t) => { for (let i = t.first; i <
      t.first + t.count; ++i) if (timeline.trace.parent[i] < 0) sum += timeline.trace.duration[i]; return sum; }, 0)""")
    page.run("byId('flame-of').value = 'threads'; byId('flame-of').dispatchEvent(new Event('change'))")
    same(page.run("[byId('flame-of').value, flame.frames.total]"), ["threads", threads], "all threads")
    same(page.run("flame.frames.rows.every((row) => { for (let k = row.from + 1; k < row.to; ++k) if ("
                  "flame.frames.start[k] < flame.frames.start[k - 1] + flame.frames.duration[k - 1]) return false;"
                  "return true; })"), True, "frames do not overlap")
    page.click(200, 120)
    assert "calls" in page.run("byId('flame-at').textContent")
    page.run("document.querySelector('input[value=time]').click()")
    same(page.run("[flame.frames.isOfTime, flame.frames.rows.length]"), [True, 3], "time order")
    page.press("3")
    page.run("openSandwich(timeline.trace.strings.indexOf('matmul'))")
    same(page.run("sandwich.callers.frames.rows.length"), 3, "matmul, run, step")
    same(page.run("sandwich.callees.frames.rows.length"), 1, "matmul calls nothing")


def tables_sort_and_filter(page, pages):
    page.open(pages.path("training"), "ops")
    column = "[...document.querySelectorAll('#rows tbody tr:not(.beside)')].filter((r) => parseInt(r.cells[0].style.paddingLeft) === 10)" \
             ".map((r) => Number(r.cells[1].dataset.value))"
    page.run("document.querySelectorAll('#rows thead button')[1].click()")
    calls = page.run(column)
    same(calls, sorted(calls, reverse=True), "by calls")
    same(page.run("document.querySelectorAll('#rows thead th')[1].getAttribute('aria-sort')"), "descending", "aria-sort")
    page.run("document.querySelectorAll('#rows thead button')[1].click()")
    same(page.run(column), sorted(calls), "the other way")
    page.run("byId('ops-filter').focus()")
    page.type("gelu")
    names = page.run("[...document.querySelectorAll('#rows tbody th')].map((th) => th.textContent)")
    assert names and any("gelu" in name for name in names) and "softmax" not in " ".join(names), names


def findings_are_shown_where_there_are_some(page, pages):
    page.open(pages.path("training"))
    page.run("""byId("cards").prepend(findingsCard({findings: {list: [{title: "Data comes too late <b>", kind: "late_data",
      predicted_ns: 2500, predicted_share: 0.25, gain_ns: [1000, 2500], change: "read ahead", bound: "the GPU <b>",
      evidence_kinds: [{name: "<b>", count: 1, lost_ns: 5}], evidence: [{name: "<b>", kind: 0, span: 3, lost_ns: 5}]}]}}))""")
    text = page.run("byId('cards').innerText")
    for part in ("Data comes too late <b>", "read ahead", "1 µs", "2.5 µs", "the GPU <b>"):
        assert part in text, (part, text[:400])
    page.run("""byId("cards").prepend(findingsCard({findings: {list: [], abstained: "the trace has 2 steps <b>"}}))""")
    assert "Nothing is said about gains: the trace has 2 steps <b>" in page.run("byId('cards').innerText")


def findings_say_what_the_json_says(page, pages):
    """Steps that change, the limit, checks by their titles; and an example of every kind, which a click selects."""
    kinds_seen = set()
    for name in ("collected", "exact", "jax", "layers", "saved"):
        found = pages.json(name)["findings"]
        page.open(pages.path(name))
        card = page.run("[...document.querySelectorAll('.card')].find((c) => c.querySelector('h2').textContent === "
                        "'Findings').innerText")
        plain = lambda text: text.replace(" us", " µs").replace("->", "→")  # noqa: E731
        assert plain(found["about"]) in card, (name, card)
        assert found["no_lines"] in card and found["no_lines"], name
        for one in found["silent"]:
            assert one["title"] in card and one["kind"] not in card, (one, card)
        for number, finding in enumerate(found["list"]):
            for part in (finding["title"], plain(finding["effect"]), plain(finding["bound"]), finding["kind"],
                         finding["operands"], *(part["title"] for part in finding["parts"])):
                assert part in card, (name, part)
            rows = page.run(f"""[...document.querySelectorAll('.findings > li')[{number}].querySelectorAll('tbody tr')]
              .map((row) => [row.cells[0].textContent, row.cells[1].textContent])""")
            has_several = len({kind["is"] for kind in finding["evidence_kinds"]}) > 1
            same(rows, [[kind["name"] + (": " + kind["is"] if has_several else ""), str(kind["count"])]
                        for kind in finding["evidence_kinds"]], "kinds of evidence")
            shown = {one["kind"] for one in finding["evidence"]}
            same(shown, set(range(len(finding["evidence_kinds"]))), f"an example of every kind in {name}")
            assert all("(" not in kind["name"] for kind in finding["evidence_kinds"] if "kernel" in kind["name"]), rows
            for n, one in enumerate(sorted(finding["evidence"], key=lambda one: one["kind"])):
                page.press("0")
                page.run(f"document.querySelectorAll('.findings > li')[{number}].querySelectorAll('td .link')[{n}].click()")
                page.settle()
                at = page.run("[currentView(), timeline.selected, timeline.trace.name(timeline.selected), "
                              "timeline.trace.start[timeline.selected]]")
                same(at, ["timeline", one["span"], one["name"], one["start_ns"]], "the span that was clicked")
                facts = dict(page.run("[...byId('details').querySelectorAll('tr')].map((r) => [r.cells[0].textContent, "
                                      "r.cells[1].textContent])"))
                if one["step"]:  # else it was launched in one that is left out
                    same(facts.get("Step"), str(one["step"]), f"step of {one['name']}")
                kinds_seen.add(page.run("timeline.trace.kind(timeline.selected)"))
    assert len(kinds_seen) >= 4, kinds_seen


def the_op_of_a_finding_leads_to_its_row_and_its_longest_call(page, pages):
    for name in ("layers", "saved"):
        finding = next(one for one in pages.json(name)["findings"]["list"] if one["op"])
        page.open(pages.path(name))
        link = lambda text: page.run(  # noqa: E731
            f"[...document.querySelectorAll('.findings .link')].find((b) => b.textContent === {json.dumps(text)}).click()")
        link(finding["op"])
        page.settle()
        row = page.run("(() => { const r = document.querySelector('#rows .marked'), b = r.getBoundingClientRect(), "
                       "v = byId('rows').getBoundingClientRect(); return [r.cells[0].title, b.top >= v.top && b.bottom <= v.bottom]; })()")
        same([page.run("currentView()"), *row], ["ops", finding["op"], True], f"the row in {name}")
        page.press("0")
        link("in the timeline")
        page.settle()
        chosen, longest = page.run(f"""[timeline.trace.duration[timeline.selected], Math.max(...Array.from(timeline.trace.site,
          (_, i) => timeline.trace.name(i) === {json.dumps(finding["op"])} ? timeline.trace.duration[i] : 0))]""")
        same([page.run("currentView()"), chosen], ["timeline", longest], "the longest call")


def words_are_explained_where_they_are(page, pages):
    """Parts of budgets that no thread has are not explained; time of kernels of no op stands beside their number."""
    for name in ("collected", "layers", "jax"):
        report = pages.json(name)
        page.open(pages.path(name))
        text = page.run("byId('cards').innerText")
        parts = {part for budget in report["wall_time"] for part in budget["parts_ns"]}
        for part in ("blocked", "wait", "exposed copies", "idle: between kernels", "your code"):
            same(f"{part[0].upper()}{part[1:]}: " in text, part in parts, f"{part} in {name}")
        records = report["records"]
        if records["unattributed"]:
            rows = dict((row[0], row[1]) for row in cells(page, "Time of kernels and replays, added up"))
            same(rows, {"of no op": records["unattributed_ns"], "all": records["gpu_ns"]}, f"times in {name}")
        heads = page.run("[...document.querySelectorAll('.card thead th')].map((th) => th.textContent)")
        assert "Share" not in heads and "Lost in all" not in heads, heads


def whose_time_it_is_is_said(page, pages):
    page.open(pages.path("collected"))
    report = pages.json("collected")
    sentence = page.run("byId('sentence').innerText")
    for part in ("On average a step takes", "until its work on GPUs has ended", "on the host alone", "the host is its limit",
                 "the median step", "the GPU is its limit"):
        assert part in sentence, (part, sentence)
    rows = dict(cells(page, "40 steps, as they are marked"))
    same(rows["median until its work on GPUs has ended"], report["findings"]["step_ns"], "with the GPU's work")
    same(rows["average until its work on GPUs has ended"], report["findings"]["base_ns"], "on average")
    same(rows["median of all 40 on the host"], report["steps"]["p50_ns"], "the host's")
    assert "Step 1 warmed up" in page.run("byId('cards').innerText")


def steps_are_bars_that_select_them(page, pages):
    page.open(pages.path("collected"))
    steps = pages.json("collected")["steps"]
    shown, worst = steps["shown"], steps["worst_step"]
    labels = page.run("[...document.querySelectorAll('.steps button')].map((b) => b.getAttribute('aria-label'))")
    same(len(labels), steps["count"], "bars")
    assert labels[0].startswith("step 1:") and "warming up" in labels[0], labels[0]
    same(page.run("[...document.querySelectorAll('.steps .out')].length"), 1, "one is marked")
    scale = "document.querySelector('.axis select')"
    same(page.run(f"{scale}.value"), "usual", "it opens by medians")
    until = [max(ns, beyond) for ns, beyond in zip(shown["ns"][1:], pages.json("collected")["findings"]["step_lengths_ns"])]
    until = [shown["ns"][0], *until]
    cut = sum(ns > 4 * sorted(until)[len(until) // 2] for ns in until)
    same(page.run("document.querySelectorAll('.steps .cut').length"), cut, "steps of more than four medians")
    assert cut and f"{cut} steps take longer" in page.run("byId('cards').innerText"), cut
    kinds = {}
    for kind in ("log", "all"):
        page.run(f"{scale}.value = '{kind}'; {scale}.dispatchEvent(new Event('change'))")
        kinds[kind] = page.run("[...document.querySelectorAll('.steps button')].map((b) => parseFloat(b.firstChild.style.height))")
        same(page.run("document.querySelectorAll('.steps .cut').length"), 0, "none is cut")
    order = sorted(range(len(until)), key=until.__getitem__)
    for heights in kinds.values():
        assert all(heights[a] <= heights[b] for a, b in zip(order, order[1:])), "a longer step has a higher bar"
    assert min(kinds["log"]) > 5 > min(kinds["all"]), (min(kinds["log"]), min(kinds["all"]))
    heights = page.run("[...document.querySelectorAll('.steps button')].map((b) => b.firstChild.getBoundingClientRect().height)")
    same(heights.index(max(heights)), worst - 1, "the highest bar")
    box = page.run(f"""(() => {{ const b = document.querySelectorAll('.steps button')[{worst - 1}].getBoundingClientRect();
      return [b.x + b.width / 2, b.bottom - 4]; }})()""")
    page.click(*box)
    page.settle()
    same(page.run("[currentView(), timeline.area.from, timeline.area.to - timeline.area.from]"),
         ["timeline", shown["start_ns"][worst - 1], steps["worst_ns"]], "the step")
    assert f"Selected: step {worst} on the host," in page.run("byId('details').innerText")
    page.press("0")
    page.run("document.querySelector('.steps button').focus()")
    page.press("ArrowRight"), page.press("ArrowRight"), page.press("ArrowLeft")
    same(page.run("[...document.querySelectorAll('.steps button')].indexOf(document.activeElement)"), 1, "by arrows")
    same(page.run("document.querySelectorAll('.steps button[tabindex=\"0\"]').length"), 1, "one place in the order")


def rows_say_where_they_ran_and_what_of_the_time(page, pages):
    """Also time in which nothing runs, so that the first card does not seem to miss it."""
    for name in ("collected", "jax"):
        report = pages.json(name)
        whole = report["overhead"]["total_ns"]
        page.open(pages.path(name))
        rows = {row[0]: row[1:] for row in cells(page, "Outermost rows, and time beside them")}
        gpu = next(budget for budget in report["wall_time"] if budget["of"] == "GPU 0")["parts_ns"]
        idle = sum(ns for part, ns in gpu.items() if part.startswith("idle"))
        same(rows["(GPU 0 idle)"][2], idle, "idle")
        same(rows["(only your code)"][2], report["overhead"]["your_code_ns"], "only your code")
        assert {"host", "GPU"} <= {row[0] for row in rows.values()}, rows
        assert "may exceed the wall time" in page.run("byId('cards').innerText")
        page.press("4")
        assert "may exceed the wall time" in page.run("byId('ops-legend').innerText")
        sections = report["merged"] + report["threads"]
        own = next(number for number, section in enumerate(sections) if section.get("thread") == "GPU 0")
        assert sections[own]["gpu"] is True
        page.run(f"byId('ops-of').value = {own}; byId('ops-of').dispatchEvent(new Event('change'))")
        beside = dict(page.run("[...document.querySelectorAll('#rows tr.beside')].map((row) => [row.cells[0].textContent, "
                               "Number(row.cells[2].dataset.value)])"))
        same(beside, {f"({part})": ns for part, ns in gpu.items() if part.startswith("idle")}, "idle time of the GPU")
        shares = page.run("[...document.querySelectorAll('#rows tr:not(.beside) td:nth-child(4)')].map((td) => "
                          "Number(td.dataset.value))")
        for share, row in zip(shares, sections[own]["rows"]):
            assert abs(share - row["ratio"] * sections[own]["under_way_ns"]) < 1 and share <= whole, (share, row)


def a_row_opens_its_longest_call(page, pages):
    for name, row in (("training", "softmax"), ("collected", None)):
        page.open(pages.path(name), "ops")
        title = row or page.run("document.querySelector('#rows tbody .link').title.split('\\n')[0]")
        page.run(f"[...document.querySelectorAll('#rows tbody .link')].find((b) => b.title.startsWith({json.dumps(title)})).click()")
        page.settle()
        chosen, longest = page.run(f"""[timeline.trace.duration[timeline.selected], Math.max(...Array.from(timeline.trace.site,
          (_, i) => timeline.trace.name(i) === {json.dumps(title)} ? timeline.trace.duration[i] : 0))]""")
        same(chosen, longest, f"the longest of {title}")
        same(page.run("[byId('search').value, byId('found').textContent, timeline.matches]"), ["", "", None],
             "what is looked for stays as it is")
        assert "The longest of" in page.run("byId('details').innerText")


def flame_graphs_open_on_the_side_of_the_limit(page, pages):
    for name, side in (("collected", None), ("exact", "gpus"), ("layers", None), ("jax", "threads")):
        found = pages.json(name)["findings"]
        limit = "GPU" if side == "gpus" else "host"
        assert found["limit"] in (limit, ""), f"limit of {name}"  # where it is neither, the busy side
        page.open(pages.path(name), "flame")
        chosen = page.run("[byId('flame-of').value, byId('flame-of').selectedOptions[0].textContent, "
                          "byId('flame-at').textContent]")
        assert (chosen[0] == side) if side else chosen[1].startswith("thread "), (name, chosen)
        assert f"On average a step's time goes to the {limit}" in chosen[2], chosen


def names_are_whole_in_the_sandwich(page, pages):
    page.open(pages.path("collected"), "sandwich")
    rows = page.run("[...document.querySelectorAll('#sandwich-list tbody th')].map((th) => [th.title, th.textContent, "
                    "th.scrollWidth <= th.clientWidth + 1])")
    long = [row for row in rows if row[0].startswith("void ")]
    assert len(long) > 3 and all(title in text and fits for title, text, fits in long), long[:2]
    same(page.run("getComputedStyle(byId('sandwich-list')).resize"), "horizontal", "resizable")
    assert any(text.startswith("multi_tensor_apply_kernel<FusedSgdMathFunctor>void ") for _, text, _ in long), long


def every_tick_has_its_time(page, pages):
    page.open(pages.path("collected"), "timeline")
    for start, end in ((0, 1), (0.2, 0.31), (0.5, 0.50001)):
        written, ticks_of = page.run(f"""(() => {{ const texts = [], wall = timeline.trace.wall, old =
          CanvasRenderingContext2D.prototype.fillText;
          CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {{ if (this.canvas.id === "ruler")
            texts.push([text, x, x + this.measureText(text).width]); return old.call(this, text, x, y); }};
          timeline.lookAt({start} * wall, {end} * wall); drawRuler(timeline);
          CanvasRenderingContext2D.prototype.fillText = old;
          return [texts, ticks(timeline.from, timeline.to, timeline.width).at.length]; }})()""")
        labels = [text for text in written if not text[0].endswith(" seen")]
        same(len(labels), ticks_of, "labels")
        for before, after in zip(labels, labels[1:]):
            assert before[2] < after[1], (before, after)
            assert len(after[0].split(" ")[0].rpartition(".")[2]) <= 3 or "." not in after[0], after


# ---- recordings of all kinds ----

def names_are_text_whatever_they_hold(page, pages):
    page.open(pages.path("names"))
    for view in "12340":
        page.press(view)
    page.press("/")
    page.type("__proto__")
    page.press("Enter")
    same(page.run("[typeof hacked, timeline.trace.name(timeline.selected)]"), ["undefined", "__proto__"], "names")
    same(page.run("document.querySelectorAll('script').length"),
         page.run("document.querySelectorAll('body > script').length"), "scripts")


def an_empty_recording_says_so(page, pages):
    page.open(pages.path("empty"))
    assert "empty" in page.run("byId('sentence').textContent")
    for key, place in (("1", "timeline-empty"), ("2", "flame-empty")):
        page.press(key)
        assert "Nothing was recorded" in page.run(f"byId('{place}').innerText")
    page.press("3"), page.press("4"), page.press("w"), page.press("f")


def one_span_many_threads_and_odd_times_are_drawn(page, pages):
    page.open(pages.path("one"), "timeline")
    page.press("ArrowRight")
    same(page.run("timeline.trace.name(timeline.selected)"), "alone", "one")
    page.press("f"), page.press("w"), page.press("2"), page.press("3")
    page.open(pages.path("threads"), "timeline")
    same(page.run("timeline.trace.tracks.length"), 10000, "tracks")
    page.run("timeline.scroller.scrollTop = 1e9")
    page.settle()
    same(page.run("timeline.lines.at(-1).y - timeline.scroller.scrollTop < timeline.scroller.clientHeight"), True, "the last")
    page.press("2"), page.press("3"), page.press("4")
    page.open(pages.path("times"), "timeline")
    same(page.run("timeline.trace.tracks.map((t) => t.count)"), [300, 3000, 300], "spans")
    same(page.run("""timeline.trace.tracks.every((t) => t.rows.every((row) => { for (let k = row.from + 1; k < row.to; ++k) {
      const o = timeline.trace.order; if (timeline.trace.start[o[k]] < timeline.trace.end(o[k - 1])) return t.name; }
      return true; }) === true || t.name === "thread0")"""), True, "rows without overlaps")
    same(page.run("timeline.trace.tracks[1].rows.length"), 3000, "as deep as it goes")
    for key in "wwwfr23":
        page.press(key)


def ranks_have_heads_of_their_own(page, pages):
    page.open(pages.path("ranks"), "timeline")
    heads = page.run("timeline.lines.filter((line) => line.head).map((line) => line.head)")
    same(heads, ["rank 0 · host", "rank 0 · GPU 0", "rank 1 · host", "rank 1 · GPU 0"], "heads")


def a_browser_that_cannot_unpack_shows_the_report_and_says_so(_, pages):
    with Browser() as page:
        page.before_scripts("delete window.DecompressionStream")
        page.open(pages.path("training"))
        assert "no DecompressionStream" in page.run("byId('problem').innerText")
        same(cells(page, "Wall time")[-1][1], pages.json("training")["overhead"]["total_ns"], "the report is there")
        same(page.problems(), [], "problems")


def colours_have_contrast_in_light_and_dark(page, pages):
    """4.5 : 1 between text and its background, canvases among them."""
    script = """(() => {
      const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
      const light = (color) => { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 :
          ((c + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
      forgetColors(); const all = colors(), found = [];
      for (const [a, b] of [["text", "page"], ["text", "panel"], ["soft", "page"], ["soft", "panel"], ["soft", "raised"],
        ["text", "raised"], ["warn", "panel"], ["soft", "wait-fill"], ["on-fill", "plain-fill"]])
        found.push([contrast(all[a], all[b]), a + " on " + b]);
      for (let n = 0; n < 300; ++n) found.push([contrast(all["on-fill"], fillOf("name" + n, "op")), fillOf("name" + n, "op")]);
      return found.sort((a, b) => a[0] - b[0])[0]; })()"""
    for is_dark in (False, True):
        page.set_dark(is_dark)
        page.open(pages.path("training"))
        least = page.run(script)
        assert least[0] >= 4.5, (is_dark, least)
    page.set_dark(False)


def all_that_can_be_done_has_a_name_and_a_place_in_the_order(page, pages):
    page.open(pages.path("training"))
    nameless = page.run("""[...document.querySelectorAll("button, input, select, [role=tab], [tabindex='0']")].filter((e) =>
      !e.textContent.trim() && !e.getAttribute("aria-label") && !e.labels?.length && !e.getAttribute("aria-labelledby"))
      .map((e) => e.outerHTML.slice(0, 80))""")
    same(nameless, [], "without a name")
    same(page.run("[...document.querySelectorAll('table')].every((t) => t.caption && t.tHead && "
                  "[...t.tHead.querySelectorAll('th')].every((th) => th.scope === 'col'))"), True, "captions and heads")
    order = []
    page.run("document.activeElement.blur()")
    for _ in range(4):
        page.press("Tab")
        order.append(page.run("document.activeElement.id"))
    same(order, ["tab-overview", "search", "help-button", "view-overview"], "focus order")
    page.run("byId('tab-overview').focus()")
    page.press("ArrowRight")
    same(page.run("[currentView(), document.activeElement.id]"), ["timeline", "tab-timeline"], "arrows on tabs")


def views_look_as_they_should(page, pages):
    """Nothing is wider than its window; pictures for people, where they are asked for."""
    for width, is_dark in ((1280, False), (1280, True), (420, False)):
        page.resize(width, 800)
        page.set_dark(is_dark)
        for view in ("overview", "timeline", "flame", "sandwich", "ops"):
            page.open(pages.path("training"), view)
            if PICTURES:
                page.picture(os.path.join(PICTURES, f"{view}_{width}_{'dark' if is_dark else 'light'}.png"))
            same(page.run("document.documentElement.scrollWidth <= innerWidth"), True, f"{view} at {width}")
            if view in ("overview", "sandwich"):
                page.open(pages.path("collected"), view)
                same(page.run("document.documentElement.scrollWidth <= innerWidth"), True, f"real {view} at {width}")
                if PICTURES:
                    page.picture(os.path.join(PICTURES, f"real_{view}_{width}_{'dark' if is_dark else 'light'}.png"))
                page.open(pages.path("training"), view)
            if view == "timeline":  # something is drawn
                colours = page.run("""new Set(new Uint32Array(byId("canvas").getContext("2d").getImageData(0, 0,
                  byId("canvas").width, byId("canvas").height).data.buffer)).size""")
                assert colours > 10, colours
    page.resize(1280, 800)
    page.set_dark(False)


TESTS = [
    numbers_are_those_of_the_json_report, spans_are_those_of_the_recording,
    rounded_times_are_near_and_said_to_be_rounded, sums_of_a_stretch_are_those_of_its_spans,
    keys_move_and_zoom_the_timeline, a_click_selects_what_is_there,
    a_kernel_says_what_started_it_and_what_it_carries, a_drag_selects_a_stretch, search_counts_dims_and_goes_on,
    views_change_by_their_keys, findings_are_shown_where_there_are_some, findings_say_what_the_json_says,
    the_op_of_a_finding_leads_to_its_row_and_its_longest_call, words_are_explained_where_they_are,
    whose_time_it_is_is_said, steps_are_bars_that_select_them, rows_say_where_they_ran_and_what_of_the_time,
    a_row_opens_its_longest_call, flame_graphs_open_on_the_side_of_the_limit, names_are_whole_in_the_sandwich,
    every_tick_has_its_time, flame_graphs_add_up,
    tables_sort_and_filter, names_are_text_whatever_they_hold, an_empty_recording_says_so,
    one_span_many_threads_and_odd_times_are_drawn, ranks_have_heads_of_their_own,
    a_browser_that_cannot_unpack_shows_the_report_and_says_so, colours_have_contrast_in_light_and_dark,
    all_that_can_be_done_has_a_name_and_a_place_in_the_order, views_look_as_they_should,
]


def main():
    if not find_browser():
        print("not run: no Chromium (tools/deps.sh browser)")
        return 0
    failed = 0
    if PICTURES:
        os.makedirs(PICTURES, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Browser() as page:
        pages = Pages(folder)
        for test in TESTS:
            try:
                test(page, pages)
                same(page.problems(), [], "problems")
                print(f"ok      {test.__name__}", flush=True)
            except Exception:  # each test is told of by itself
                failed += 1
                print(f"FAILED  {test.__name__}\n{traceback.format_exc()}", flush=True)
    print(f"{len(TESTS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
