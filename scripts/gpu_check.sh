#!/usr/bin/env bash
# GPU tests and benchmarks on a machine with an NVIDIA Hopper card, without installing anything.
#
# Uses the python3 and the packages that the machine has and the ptxas that was brought along:
#   TLXC_PTXAS   the assembler; default ./.carry/ptxas
#   OUT          folder for logs, junit file and benchmark results; default build/gpu_check
# Exits non-zero when a test or a benchmark fails; benchmarks run either way.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

out="${OUT:-build/gpu_check}"
mkdir -p "$out" || exit 1
out="$(cd "$out" && pwd)"
export TLXC_PTXAS="${TLXC_PTXAS:-$PWD/.carry/ptxas}"
if [ ! -x "$TLXC_PTXAS" ] && ! chmod +x "$TLXC_PTXAS" 2>/dev/null; then
    echo "No ptxas at $TLXC_PTXAS: copy the one of the nvidia-cuda-nvcc-cu12 wheel there, or set TLXC_PTXAS." >&2
    exit 1
fi
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
TLXC_CACHE_DIR="$(mktemp -d)"
export TLXC_CACHE_DIR
trap 'rm -rf "$TLXC_CACHE_DIR"' EXIT

nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv,noheader | tee "$out/device.txt"
"$TLXC_PTXAS" --version | tail -2 | tee -a "$out/device.txt"

tests=0
run_tests() { # NAME MARKERS PROCESSES
    python3 -m pytest -m "$2" -q -n "$3" --junitxml="$out/$1.xml" 2>&1 | tee "$out/$1.log"
    [ "${PIPESTATUS[0]}" -eq 0 ] || tests=1
}
run_tests pytest "gpu and not alone" 12
run_tests pytest_alone "gpu and alone" 0

# A kernel that faults ends the context of its process, so the earliest failures tell most.
python3 - "$out/pytest.xml" "$out/pytest_alone.xml" <<'PY'
import sys
import xml.etree.ElementTree as xml

cases = [case for path in sys.argv[1:] for case in xml.parse(path).iter("testcase")]
failed = [(case, bad) for case in cases for bad in case if bad.tag in ("failure", "error")]
for case, bad in failed[:20]:
    print(f"{case.get('classname')} {case.get('name')}: {bad.get('message', '')[:200]}")
PY

failed=()
shopt -s nullglob
for bench in benchmarks/[!_]*.py; do
    name="$(basename "$bench" .py)"
    result="benchmarks/results/$name.json"
    touch "$TLXC_CACHE_DIR/start" # a result counts only if this run wrote it
    echo "== $name"
    timeout 240 python3 "$bench" >"$out/$name.log" 2>&1 && [ "$result" -nt "$TLXC_CACHE_DIR/start" ] &&
        cp "$result" "$out/" && continue
    failed+=("$name")
    tail -20 "$out/$name.log"
done

python3 - "$out" <<'PY'
import json, pathlib, sys

row = "{:<18} {:<34} {:>12} {:<8} {:>12} {:>7}"
print(row.format("benchmark", "case", "tlxc", "unit", "best peer", "ratio"))
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
    for r in json.loads(path.read_text()):
        if "tlxc" not in r:  # of litmus.py or faults.py
            continue
        ratio = r.get("ratio_best")
        peers = [v for v in (r.get("peers") or {}).values() if v] if ratio else []
        # The peer that ratio_best speaks of; the metric may count up (TFLOP/s) or down (microseconds).
        best = min(peers, default=None, key=lambda v: min(abs(r["tlxc"] / v - ratio), abs(v / r["tlxc"] - ratio)))
        print(row.format(r["benchmark"], str(r["case"])[:34], f"{r['tlxc']:.4g}", r["unit"],
                         "-" if best is None else f"{best:.4g}", "-" if ratio is None else f"{ratio:.3f}"))
PY
tail -qn 1 "$out/pytest.log" "$out/pytest_alone.log"
[ ${#failed[@]} -eq 0 ] || echo "benchmarks that failed: ${failed[*]}"
[ "$tests" -eq 0 ] && [ ${#failed[@]} -eq 0 ]
