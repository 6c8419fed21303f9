"""`python -m tests.benchmarks.compare_transformers CHECKPOINT`: q35chat beside transformers.

Each row is measured in a process of its own, one after the other: export time and peak memory,
then load time, a prefill and decode steps after it. Needs torch for transformers' rows.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from q35chat.engine.decoder import extend

Numbers = dict[str, float]
PRECISIONS = ("fp32", "int8", "int4")
REPEATS = 3
COLUMNS = {
    "export_s": "export s",
    "export_peak_mb": "export peak MB",
    "bundle_mb": "bundle MB",
    "load_s": "load s",
    "prefill_tps": "prefill tok/s",
    "decode_tps": "decode tok/s",
    "peak_mb": "peak MB",
}


def peak_mb() -> float:
    """The most memory this process ever held, in MB of a million bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def export(arguments: argparse.Namespace) -> Numbers:
    """Export the checkpoint once."""
    from q35export.pipeline import export as run  # noqa: PLC0415
    from q35export.progress import PlainReporter  # noqa: PLC0415
    from q35export.request import ExportRequest  # noqa: PLC0415

    out = bundle_folder(arguments)
    request = ExportRequest(
        model=str(arguments.checkpoint),
        out=out,
        target="cpu",
        precision=arguments.precision,
        max_seq_len=arguments.capacity,
        force=True,
    )
    start = perf_counter()
    run(request, PlainReporter(sys.stderr))
    seconds = perf_counter() - start
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return {"export_s": seconds, "export_peak_mb": peak_mb(), "bundle_mb": size / 1e6}


def engine(arguments: argparse.Namespace) -> Numbers:
    """Run the exported bundle."""
    from q35chat.bundle.bundle import Bundle  # noqa: PLC0415
    from q35chat.engine.one_graph import OneGraphDecoder  # noqa: PLC0415
    from q35chat.runtimes.onnxruntime import OrtSession  # noqa: PLC0415

    start = perf_counter()
    bundle = Bundle.open(bundle_folder(arguments))
    vision = OrtSession(bundle.graph_path("vision"), threads=arguments.threads)
    text = OrtSession(bundle.graph_path("text"), threads=arguments.threads)
    decoder = OneGraphDecoder(text)
    load = perf_counter() - start
    ids = prompt(arguments.prefill)
    positions = np.tile(np.arange(len(ids)), (3, 1))

    def prefill() -> int:
        decoder.reset()
        logits = extend(decoder, ids, positions)
        assert logits is not None
        return int(logits.argmax())

    result = timed(arguments, prefill, lambda token: int(decoder.step(token).argmax()))
    vision.close()
    return {"load_s": load, **result, "peak_mb": peak_mb()}


def transformers(arguments: argparse.Namespace) -> Numbers:
    """Run the checkpoint in transformers."""
    import torch  # noqa: PLC0415
    from transformers import Qwen3_5ForConditionalGeneration  # noqa: PLC0415

    torch.set_num_threads(arguments.threads)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[arguments.precision]
    start = perf_counter()
    model = Qwen3_5ForConditionalGeneration.from_pretrained(arguments.checkpoint, dtype=dtype)
    model.eval()
    load = perf_counter() - start
    ids = torch.from_numpy(prompt(arguments.prefill))[None]
    cache: Any = None

    def run(tokens: Any) -> int:
        nonlocal cache
        with torch.inference_mode():
            output = model(input_ids=tokens, cache=cache, use_cache=True, logits_to_keep=1)
        cache = output.cache
        return int(output.logits[0, -1].argmax())

    def prefill() -> int:
        nonlocal cache
        cache = None
        return run(ids)

    result = timed(arguments, prefill, lambda token: run(torch.tensor([[token]])))
    return {"load_s": load, **result, "peak_mb": peak_mb()}


def timed(
    arguments: argparse.Namespace, prefill: Callable[[], int], step: Callable[[int], int]
) -> Numbers:
    """Median speeds in tokens per second, after one warm-up prefill and step."""
    step(prefill())
    prefills = []
    for _ in range(REPEATS):
        start = perf_counter()
        token = prefill()
        prefills.append(perf_counter() - start)
    steps = []
    for _ in range(arguments.decode):
        start = perf_counter()
        token = step(token)
        steps.append(perf_counter() - start)
    return {
        "prefill_tps": arguments.prefill / statistics.median(prefills),
        "decode_tps": 1 / statistics.median(steps),
    }


def prompt(length: int) -> np.ndarray:
    """Random ids of plain bytes, the same every time."""
    return np.random.default_rng(0).integers(0, 256, length)


def bundle_folder(arguments: argparse.Namespace) -> Path:
    """Where the bundle of a precision lies."""
    work: Path = Path(arguments.work)
    return work / str(arguments.precision)


WORKERS = {"export": export, "engine": engine, "transformers": transformers}


def measure(arguments: argparse.Namespace, worker: str, precision: str, work: str) -> Numbers:
    """Run one worker in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, str(arguments.checkpoint)]
    command += ["--worker", worker, "--precision", precision, "--work", work]
    for name in ("threads", "prefill", "decode", "capacity"):
        command += [f"--{name}", str(getattr(arguments, name))]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    numbers: Numbers = json.loads(result.stdout.splitlines()[-1])
    return numbers


def compare(arguments: argparse.Namespace, work: str) -> None:
    """Print a Markdown table, a row a precision and program."""
    write("| | " + " | ".join(COLUMNS.values()) + " |")
    write("|---" * (len(COLUMNS) + 1) + "|")
    for precision in PRECISIONS:
        numbers = measure(arguments, "export", precision, work)
        numbers |= measure(arguments, "engine", precision, work)
        row(f"q35chat {precision}", numbers)
    for precision in ("fp32", "bf16"):
        row(f"transformers {precision}", measure(arguments, "transformers", precision, work))


def row(name: str, numbers: Numbers) -> None:
    """One line of the table."""
    cells = (f"{numbers[key]:,.1f}" if key in numbers else "" for key in COLUMNS)
    write(f"| {name} | " + " | ".join(cells) + " |")


def write(line: str) -> None:
    """Print at once: a run takes minutes."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Compare, or be one of the workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefill", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("--decode", type=int, default=32, help="decode steps")
    parser.add_argument("--capacity", type=int, default=2048, help="KV slots of the bundles")
    parser.add_argument("--work", help="folder for the bundles; default: one that is removed")
    parser.add_argument("--precision", default="fp32", help=argparse.SUPPRESS)
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        write(json.dumps(WORKERS[arguments.worker](arguments)))
        return
    if arguments.work:
        compare(arguments, arguments.work)
        return
    with tempfile.TemporaryDirectory() as work:
        compare(arguments, work)


if __name__ == "__main__":
    main()
