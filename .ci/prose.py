"""Check README and docs: words per sentence, long sentences, banned phrases and words per page."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
MEAN_WORDS, LONG_WORDS, LONG_SHARE = 16, 30, 0.04
#: Most words of pages, by the beginning of their paths.
PAGE_WORDS = {"README.md": 700, "docs/tutorials": 900, "docs/how-to": 900, "docs/explanation": 900}
BANNED = re.compile(
    r"^(?:Of|What|Those|By)\b(?!.*\?$)|\b(?:way back|go(?:es)? by|(?:is|are) told|of (?:its|their) own"
    r"|by name|stands?|ours|alone|behind|is quicker|takes? no|as many as|one another|likewise)\b"
)


def prose(text: str) -> str:
    """The text without code, tables, headings, comments and pictures; `code` in a line counts as a word."""
    text = re.sub(r"\A---\n.*?^---\n|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^( *)```.*?^\1```$", "\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(?: {4}(?! *[-*\d]).*|\|.*|#+ .*|::: .*)$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!\[[^]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\*\*|<[^>]+>", "", re.sub(r"`[^`]+`", "code", text))


def sentences(text: str) -> list[str]:
    """Sentences end at . ! ? : before a blank, at an empty line and at the next item of a list."""
    parts = re.split(r"\n\s*\n|\n *(?:[-*]|\d+\.) |(?<=[.!?:])\s|(?<=[.!?:][)\"])\s", "\n" + text)
    parts = [" ".join(part.split()) for part in parts]
    return [part for part in parts if re.search(r"\w", part)]


def complaints(name: str, text: str) -> list[str]:
    """The faults of one page."""
    found = sentences(prose(text))
    counts = [len(sentence.split()) for sentence in found]
    result = [f"{match[0]!r} is banned: {s}" for s in found if (match := BANNED.search(s))]
    if sum(counts) > MEAN_WORDS * len(found):
        result.append(f"{sum(counts) / len(found):.1f} words per sentence, at most {MEAN_WORDS}")
    long = [s for s, count in zip(found, counts, strict=True) if count > LONG_WORDS]
    if len(long) > LONG_SHARE * len(found):
        result += [f"more than {LONG_WORDS} words: {s}" for s in long]
    limit = next((words for start, words in PAGE_WORDS.items() if name.startswith(start)), sum(counts))
    if sum(counts) > limit:
        result.append(f"{sum(counts)} words, at most {limit}")
    return [f"{name}: {line}" for line in result]


def main() -> int:
    """Print the faults of the pages (default: of all), and return the exit code."""
    named = [Path(name).resolve() for name in sys.argv[1:]]
    pages = named or [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    faults = [f for p in sorted(pages) for f in complaints(str(p.relative_to(ROOT)), p.read_text("utf-8"))]
    print("\n".join(faults) or f"prose: {len(pages)} pages")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
