#!/usr/bin/env python3
"""tools/bench/torch_trace.py turns the events of FSDP2 into those that timeline.py draws. No PyTorch needed."""
import importlib.util
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def loaded(path):
    sys.path.insert(0, str((ROOT / path).parent))  # of the modules next to it
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


torch_trace = loaded("tools/bench/torch_trace.py")
timeline = loaded("docs/figures/timeline.py")
STEP, GLOO = 7, 8  # threads


def profiled(shift=0.0):
    """A step of a root and one block, as the profiler of PyTorch 2.15 names it."""
    events = []

    def event(begin, end, name, thread=STEP):
        events.append({"ph": "X", "name": name, "tid": thread, "ts": begin + shift, "dur": end - begin})

    def gather(begin, unit):
        event(begin, begin + 10, f"FSDP::all_gather{unit}")
        event(begin + 1, begin + 2, "fsdp::all_gather_copy_in")
        event(begin + 3, begin + 4, "c10d::_allgather_base_")
        event(begin + 5, begin + 8, "gloo:all_gather", GLOO)
        event(begin + 4, begin + 9, "Work.wait")

    def reduce(begin, unit):
        event(begin, begin + 10, f"FSDP::post_backward_reduce{unit}")
        event(begin + 1, begin + 2, "fsdp::chunk_cat_mixed_dtype")
        event(begin + 3, begin + 4, "c10d::_reduce_scatter_base_")
        event(begin + 4, begin + 9, "Work.wait")
        event(begin + 5, begin + 8, "gloo:all_reduce", GLOO)  # gloo has no reduce_scatter

    block = " (model.transformer.h.0)"
    event(100, 115, "FSDP::pre_forward")
    gather(101, "")
    event(112, 114, "FSDP::all_gather_copy_out")
    event(120, 135, "FSDP::pre_forward" + block)
    gather(121, block)
    event(131, 134, "FSDP::all_gather_copy_out" + block)
    event(132, 133, "fsdp::split_with_sizes_copy")
    event(150, 152, "FSDP::post_forward" + block)
    event(160, 161, "FSDP::post_forward")
    event(170, 190, "FSDP::pre_backward")
    event(171, 189, "FSDP::backward_prefetch for model.transformer.h.0")
    gather(172, block)
    event(200, 205, "FSDP::pre_backward" + block)
    event(201, 204, "FSDP::all_gather_copy_out" + block)
    event(220, 221, "FSDP::post_backward_reshard" + block)
    reduce(222, block)
    event(240, 241, "FSDP::post_backward_reshard")
    reduce(242, "")
    event(260, 261, "c10d::allreduce_")
    event(262, 264, "gloo:all_reduce", GLOO)
    event(263, 265, "_c10d_functional::wait_tensor")
    event(270, 280, "Optimizer.step#AdamW.step")
    events.append({"ph": "i", "name": "aten::add", "tid": STEP, "ts": 100.0})
    return events


class TorchTraceTest(unittest.TestCase):
    def setUp(self):
        self.step, self.gloo = torch_trace.ranges_of(profiled())

    def test_the_root_has_the_parts_of_its_passes_outside_the_blocks(self):
        self.assertEqual(sorted(torch_trace.passes(self.step, "forward")),
                         [(100, 120, "forward root"), (120, 152, "forward h.0"), (152, 161, "forward root")])
        self.assertEqual(sorted(torch_trace.passes(self.step, "backward")),
                         [(170, 200, "backward root"), (200, 232, "backward h.0"), (232, 252, "backward root")])

    def test_a_unit_closes_at_the_last_event_before_it_is_copied_out_again(self):
        marks = sorted(torch_trace.marks(self.step))
        self.assertEqual([mark for mark in marks if mark[1].split()[0] in ("open", "close")],
                         [(114, "open root"), (134, "open h.0"), (152, "close h.0"), (204, "open h.0"),
                          (221, "close h.0"), (241, "close root")])

    def test_gathers_and_reductions_are_marked_where_they_are_issued(self):
        marks = sorted(torch_trace.marks(self.step))
        self.assertEqual([mark for mark in marks if mark[1].split()[0] in ("gather", "reduce")],
                         [(101, "gather root"), (121, "gather h.0"), (172, "gather h.0"), (222, "reduce h.0"),
                          (242, "reduce root")])

    def test_collectives_last_from_begin_to_end_on_the_thread_of_gloo(self):
        self.assertEqual(list(torch_trace.collectives(self.step, self.gloo)),
                         [(106, 109, "all_gather root"), (126, 129, "all_gather h.0"), (177, 180, "all_gather h.0"),
                          (227, 230, "reduce_scatter h.0"), (247, 250, "reduce_scatter root"),
                          (262, 264, "all_reduce gradient norm")])

    def test_waits_are_the_times_in_which_the_thread_of_the_step_is_blocked(self):
        waits = [span[:2] for span in torch_trace.spans(self.step) if span[2] == "exposed communication"]
        self.assertEqual(waits, [(105, 110), (125, 130), (176, 181), (226, 231), (246, 251), (263, 265)])

    def test_copies_have_the_name_of_their_unit(self):
        copies = [span for span in torch_trace.spans(self.step) if span[2].startswith("copy")]
        self.assertIn((173, 174, "copy in h.0"), copies)  # in the prefetch, not the root's
        self.assertIn((132, 133, "copy out h.0"), copies)
        self.assertIn((243, 244, "copy in root"), copies)

    def test_timeline_reads_the_trace_of_two_ranks_from_time_0(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace.json"
            path.write_text(torch_trace.trace_of([profiled(), profiled(shift=3.5)]), encoding="utf-8")
            ranks = timeline.read(path)
        timeline.keep_last_step(ranks)
        self.assertEqual([min(rank.times()) for rank in ranks], [0, 3.5])
        self.assertEqual(list(timeline.open_intervals(ranks[0].marks)),
                         [(34, 52, "h.0", 1), (104, 121, "h.0", 1), (14, 141, "root", 0)])
        self.assertEqual([time for time, _ in timeline.issues(ranks[0])], [1, 21, 72, 122, 142])

    def test_a_collective_without_its_run_is_refused(self):
        events = [event for event in profiled() if event["name"] != "gloo:all_gather" or event["ts"] > 150]
        with self.assertRaisesRegex(ValueError, "6 collectives were issued and gloo ran 4"):
            torch_trace.trace_of([events])


class FigureTest(unittest.TestCase):
    """The statements of the book about the kept traces."""

    def steps(self, name):
        ranks = timeline.read(ROOT / f"docs/figures/traces/{name}.json")
        timeline.keep_last_step(ranks)
        return ranks

    def names(self, name, begin):
        return [[span[2] for span in rank.communication if span[2].startswith(begin)] for rank in self.steps(name)]

    def test_both_ranks_issue_the_same_collectives_in_the_same_order(self):
        for name in ("fsdp", "fsdp2", "fsdp2_prefetch"):
            first, second = self.names(name, "")
            self.assertEqual(first, second, name)

    def test_fsdp2_gathers_every_block_twice_and_the_root_once(self):
        for name in ("fsdp2", "fsdp2_prefetch"):
            self.assertEqual(self.names(name, "all_gather")[0],
                             [f"all_gather {unit}" for unit in "root h.0 h.1 h.2 h.3 h.3 h.2 h.1 h.0".split()])

    def test_ours_gathers_neither_of_the_last_two_blocks_again(self):
        self.assertEqual(self.names("fsdp", "all_gather")[0],
                         [f"all_gather {unit}" for unit in "h.1 h.2 h.3 h.1 h.0 embedding h.0".split()])

    def test_fsdp2_as_it_comes_computes_during_no_gather(self):
        """The thread of the step waits from before a gather ends until after, on both ranks."""
        for rank in self.steps("fsdp2"):
            waits = [span for span in rank.compute if span[2] == "exposed communication"]
            for _, end, name in rank.communication:
                if name.startswith("all_gather"):
                    self.assertTrue(any(b <= end <= e for b, e, _ in waits), f"{name} ends at {end}")

    def test_only_fsdp2_copies(self):
        for name, copies in (("fsdp", False), ("fsdp2", True), ("fsdp2_prefetch", True)):
            for rank in self.steps(name):
                self.assertEqual(any(span[2].startswith("copy ") for span in rank.compute), copies, name)


if __name__ == "__main__":
    unittest.main()
