# SPDX-License-Identifier: Apache-2.0
"""Compiles PyTorch's side of cases for the CPU or a GPU, all at once, into Inductor's cache, so that benchmarks/compare finds
it there and need not wait for one after the other.

  paoding bench --list --device cpu --json cases.json
  OMP_NUM_THREADS=16 python3 benchmarks/peers/compile_ahead.py cases.json cpu SECONDS CASE..

For a GPU `cuda` in place of cpu, twice. What is not done after SECONDS is ended, and what it may have left half-written in
the cache is removed. The cache is TORCHINDUCTOR_CACHE_DIR. Prints how long each took, or why it is not compiled.
"""
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def remove_what_was_being_linked():
    """Inductor takes any library that is there for a whole one; what is removed it links anew."""
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    for path in glob.glob(os.path.join(cache, "**", "*.so"), recursive=True) if cache else []:
        if time.time() - os.path.getmtime(path) < 10:
            os.remove(path)


def main():
    listed, device, seconds, names = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4:]
    with open(listed) as file:
        cases = {case["case"]: case for case in json.load(file)["rows"]}
    begin, started = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            base = os.path.join(folder, name.replace("/", "_"))
            with open(base + ".in", "w") as file:
                state = {"cache": "hot", "clock": "wall", "sets": 1, "swept": False}
                file.write(json.dumps({"case": cases[name], "states": [state], "quick": True}) + "\n")
            with open(base + ".in") as asked, open(base + ".out", "w") as out, open(base + ".err", "w") as errors:
                command = [sys.executable, os.path.join(HERE, "torch_peer.py"), device]
                started[name] = base, subprocess.Popen(command, stdin=asked, stdout=out, stderr=errors, start_new_session=True,
                                                       env={**os.environ, "TORCH_WAYS": "compiled"})
        for name, (base, process) in started.items():
            try:
                process.wait(max(0.1, seconds - (time.monotonic() - begin)))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with the compilers it started
                process.wait()
                remove_what_was_being_linked()
            with open(base + ".out") as file:
                rows = [json.loads(line) for line in file if line.startswith("{")]
            with open(base + ".err", errors="replace") as file:
                said = [line.strip() for line in file if line.strip()]
            found = [row.get("why") or f"{row['peer']} {row['us']:.0f} us" for row in rows]
            if not rows:
                found = [f"exit code {process.returncode}: {said[-1][:160] if said else 'nothing said'}"]
            print(f"{time.monotonic() - begin:5.0f} s  {name}: " + "; ".join(found), flush=True)


if __name__ == "__main__":
    main()
