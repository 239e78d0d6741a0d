#!/usr/bin/env python3
"""Draw what each sampler makes of one distribution: docs/sampling.svg.

usage: draw_sampling.py [--prompt TEXT] QUERN MODEL.gguf OUT.svg

Runs `quern run --show-probs` once for each panel and once without any sampler, each for one token,
and draws the probabilities of the likeliest tokens before (grey) and after. Needs nothing but the
standard library; the same model gives the same file on every machine.
"""
import argparse
import json
import subprocess
from xml.sax.saxutils import escape

PROMPT = "The cat sat on the mat. The dog sat on the"
N_TOKENS = 15  # bars of a panel
N_COLUMNS = 4

# Title, what it shows, flags. --samplers names what is at work; the rest of the chain is off.
PANELS = [
    ("temperature 0.5", "the likely become likelier", "--samplers temperature --temp 0.5"),
    ("temperature 1.5", "all become more alike", "--samplers temperature --temp 1.5"),
    ("top-k 8", "the 8 best", "--samplers top_k --top-k 8"),
    ("top-p 0.6", "the fewest that reach 60 %", "--samplers top_p --top-p 0.6"),
    ("min-p 0.1", "a tenth of the best, and up", "--samplers min_p --min-p 0.1"),
    ("typical 0.5", "surprise near the expected", "--samplers typ_p --typical 0.5"),
    ("top-n-sigma 1", "one deviation below the best", "--samplers top_n_sigma --top-nsigma 1"),
    ("xtc 0.1, acting", "of those above 10 %, the last",
     "--samplers xtc --xtc-probability 1 --xtc-threshold 0.1"),
    ("presence penalty 1", "what occurred loses a bit", "--samplers penalties --presence-penalty 1"),
    ("dry 0.8", "no “sat on the mat” again", "--samplers dry --dry-multiplier 0.8 "
     "--dry-sequence-breaker none"),
    ("mirostat 2, entropy 2", "nothing above 4 bits at first", "--mirostat 2 --mirostat-ent 2 --temp 1"),
    ("adaptive-p 0.05", "behind min-p: 5 % preferred",
     "--samplers min_p;adaptive_p --min-p 0.05 --adaptive-target 0.05"),
]

PANEL_WIDTH, PANEL_HEIGHT, ROW = 178, 272, 15
BAR_ROOM, FULL = 150, 0.5  # pixels of the probability FULL
LEFT, TOP, GAP = 74, 62, 14
BEFORE, AFTER, INK, FAINT = "#d5d8dc", "#1f6fb2", "#22262a", "#6b7280"


def shown(quern, model, prompt, flags, n):
    """The candidates that a chain leaves for the first token: id -> (text, probability)."""
    command = [quern, "run", "-m", model, "-p", prompt, "-n", "1", "-s", "1", "--show-probs", str(n),
               "--no-display-prompt", "--no-show-timings", *flags.split()]
    run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                         check=False)
    lines = [line for line in run.stderr.splitlines() if line.startswith("{")]
    if run.returncode != 0 or not lines:
        raise SystemExit(f"{' '.join(command)}\n{run.stderr}")
    return {one["id"]: (one["text"], one["prob"]) for one in json.loads(lines[0])["top"]}


def text(x, y, content, size=11, color=INK, anchor="start", weight=None):
    bold = f' font-weight="{weight}"' if weight else ""
    return (f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}" '
            f'text-anchor="{anchor}"{bold}>{escape(content)}</text>')


def bar(x, y, width, height, color):
    return f'<rect x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height}" fill="{color}"/>'


def draw_panel(x, y, title, note, before, after, names):
    """One panel with its upper left corner at (x, y); names: whether tokens are written beside."""
    out = [text(x, y + 12, title, 12, weight="bold"), text(x, y + 26, note, 10, FAINT)]
    y += 36
    for part in (0, FULL / 2, FULL):
        at = x + part / FULL * BAR_ROOM
        out.append(f'<line x1="{at:g}" y1="{y}" x2="{at:g}" y2="{y + ROW * len(before)}" '
                   f'stroke="#eceef0"/>')
    for row, (token, (name, prob)) in enumerate(before.items()):
        top = y + row * ROW
        if names:
            out.append(text(x - 6, top + 10.5, name.strip() or repr(name), 10, anchor="end"))
        out.append(bar(x, top + 1, min(prob, FULL) / FULL * BAR_ROOM, ROW - 3, BEFORE))
        left = after.get(token, (name, 0.0))[1]
        if left > 0:
            width = min(left, FULL) / FULL * BAR_ROOM
            out.append(bar(x, top + 4, width, ROW - 9, AFTER))
            if left >= 0.1:
                edge = max(width, min(prob, FULL) / FULL * BAR_ROOM)
                out.append(text(x + edge + 3, top + 10.5, f"{left * 100:.0f} %", 9, FAINT))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("quern")
    parser.add_argument("model")
    parser.add_argument("out")
    args = parser.parse_args()
    before = shown(args.quern, args.model, args.prompt, "--samplers ;", N_TOKENS)
    n_rows = (len(PANELS) + N_COLUMNS - 1) // N_COLUMNS
    width = LEFT + N_COLUMNS * (PANEL_WIDTH + GAP)
    height = TOP + n_rows * (PANEL_HEIGHT + GAP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'font-family="Helvetica, Arial, sans-serif">',
           "<title>What samplers make of one distribution</title>",
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           text(LEFT, 22, f"“{args.prompt} …”", 14, weight="bold"),
           text(LEFT, 40, "The likeliest next tokens by SmolLM2-135M, before (grey) and after one "
                "sampler (blue). The scale ends at 50 %.", 11, FAINT)]
    for i, (title, note, flags) in enumerate(PANELS):
        after = shown(args.quern, args.model, args.prompt, flags, 10000)
        x = LEFT + i % N_COLUMNS * (PANEL_WIDTH + GAP)
        y = TOP + i // N_COLUMNS * (PANEL_HEIGHT + GAP)
        out += draw_panel(x, y, title, note, before, after, i % N_COLUMNS == 0)
    out.append("</svg>")
    with open(args.out, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
