#!/usr/bin/env python3
"""docs/figures/timeline.py reads a trace of two steps and draws the last."""

import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest
import xml.dom.minidom

PATH = pathlib.Path(__file__).resolve().parents[1] / "docs/figures/timeline.py"
sys.path.insert(0, str(PATH.parent))  # of drawing.py
SPEC = importlib.util.spec_from_file_location("timeline", PATH)
timeline = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(timeline)

COMPUTE, COMMUNICATION = 1, 0


def trace():
    """A step from 0 to 100, one from 100 to 200 and then an evaluation, of one rank."""
    events = [{"ph": "M", "name": "thread_name", "pid": 0, "tid": tid, "args": {"name": name}}
              for tid, name in [(COMMUNICATION, "communication"), (COMPUTE, "compute")]]

    def span(name, track, begin, end):
        events.append({"ph": "X", "name": name, "pid": 0, "tid": track, "ts": begin,
                       "dur": end - begin})

    def mark(name, time):
        events.append({"ph": "i", "name": name, "pid": 0, "tid": COMPUTE, "ts": time})

    for zero in (0, 100):
        span("forward a", COMPUTE, zero + 5, zero + 30)
        mark("gather a", zero + 6)
        span("all_gather a", COMMUNICATION, zero + 7, zero + 12)
        mark("open gradients a", zero + 11)
        mark("open a", zero + 12)
        mark("open b", zero + 15)
        mark("close a", zero + 20)
        mark("open c", zero + 22)
        mark("close c", zero + 24)
        mark("close b", zero + 25)
        span("backward a", COMPUTE, zero + 30, zero + 60)
        mark("gather a", zero + 31)
        span("all_gather a", COMMUNICATION, zero + 32, zero + 35)
        mark("reduce a", zero + 60)  # as in hsdp: two collectives
        span("reduce_scatter a", COMMUNICATION, zero + 61, zero + 70)
        span("all_reduce a", COMMUNICATION, zero + 70, zero + 72)
        span("optimizer", COMPUTE, zero + 80, zero + 90)
        span("all_gather a", COMMUNICATION, zero + 91, zero + 95)  # of new weights, as in zero1
    span("exposed communication", COMPUTE, 110, 120)
    span("exposed communication", COMPUTE, 130, 155)
    span("forward a", COMPUTE, 205, 230)
    mark("gather a", 206)
    span("all_gather a", COMMUNICATION, 207, 212)
    return {"traceEvents": events}


class TimelineTest(unittest.TestCase):
    def setUp(self):
        with tempfile.TemporaryDirectory() as directory:
            self.path = pathlib.Path(directory) / "trace.json"
            self.path.write_text(json.dumps(trace()), encoding="utf-8")
            self.ranks = timeline.read(self.path)
            timeline.keep_last_step(self.ranks)
            picture = pathlib.Path(directory) / "out.svg"
            timeline.main([self.path, picture])
            self.picture = xml.dom.minidom.parse(str(picture))

    def test_the_last_step_is_kept(self):
        (rank,) = self.ranks
        self.assertEqual([span for span in rank.compute if span[2] != "exposed communication"],
                         [(105, 130, "forward a"), (130, 160, "backward a"), (180, 190, "optimizer")])
        self.assertEqual([name for _, _, name in rank.communication],
                         ["all_gather a", "all_gather a", "reduce_scatter a", "all_reduce a",
                          "all_gather a"])

    def test_windows_of_weights_that_are_open_together_lie_in_different_rows(self):
        self.assertEqual(list(timeline.open_intervals(self.ranks[0].marks)),
                         [(112, 120, "a", 0), (122, 124, "c", 0), (115, 125, "b", 1)])

    def test_collectives_are_found_for_the_marks_that_issued_them(self):
        self.assertEqual(list(timeline.issues(self.ranks[0])),
                         [(106, (107, 112, "all_gather a")), (131, (132, 135, "all_gather a")),
                          (160, (161, 170, "reduce_scatter a"))])

    def test_the_picture_names_every_span(self):
        titles = [t.firstChild.data for t in self.picture.getElementsByTagName("title")]
        for name in ("forward a", "backward a", "optimizer", "all_gather a", "open b"):
            self.assertTrue(any(title.startswith(name + ":") for title in titles), name)
        self.assertIn("forward a: 0.025 ms", titles)

    def test_waits_that_are_too_short_to_see_are_left_out(self):
        titles = [t.firstChild.data for t in self.picture.getElementsByTagName("title")]
        waits = [title for title in titles if title.startswith("exposed")]
        self.assertEqual(waits, ["exposed communication: 0.025 ms"])


if __name__ == "__main__":
    unittest.main()
