"""A checkout of the project for a test to run and edit, with the engine's answers read back."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SNAKEMAKE = Path(sys.executable).with_name("snakemake")
BEHAVIOUR = ".snakemake/behaviour"
TEXT = "In the beginning was the word, and the word was counted; and it was so.\n"


class Checkout:
    """The project's code in a folder of its own, with the study that a test runs."""

    def __init__(self, folder: Path, study: str = "tests/tiny.yaml"):
        self.folder, self.study = folder, study

    @classmethod
    def clone(cls, folder: Path, study: str = "tests/tiny.yaml", source: Path = ROOT) -> "Checkout":
        """Copies from `source` what git would, with new time stamps, and writes the text that the tiny study reads.

        What is kept of the code there goes along, since reading it again takes seconds.
        """
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in listed.stdout.splitlines():
            if (source / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source / name, folder / name)
        if (kept := source / BEHAVIOUR).is_dir():
            shutil.copytree(kept, folder / BEHAVIOUR)
        (folder / "text.txt").write_text(TEXT * 60, encoding="utf-8")
        return cls(folder, study)

    def copy(self, folder: Path) -> "Checkout":
        """Copies the checkout with its results, and the engine's memory of them, keeping every time stamp."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Checkout(folder, self.study)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replaces text that stands exactly once in a file."""
        path = self.folder / name
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def append(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")

    def snakemake(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        """Runs the study as a person would, with a lock of its own."""
        return subprocess.run(
            [SNAKEMAKE, "--configfile", self.study, *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env={**os.environ, "ASSAY_RUNTIME_DIR": str(self.folder.parent), **environment},
        )

    def plan(self, *arguments: str, **environment: str) -> Counter:
        """Counts the jobs that a run would execute, by rule."""
        dry = self.snakemake("--dry-run", *arguments, **environment)
        assert dry.returncode == 0, dry.stdout + dry.stderr
        return jobs(dry.stdout + dry.stderr)

    def run(self, *arguments: str) -> Counter:
        """Runs the study to its end and counts the jobs executed."""
        done = self.snakemake(*arguments)
        self.said = done.stdout + done.stderr
        assert done.returncode == 0, self.said
        return Counter(re.findall(r"^(?:local)?(?:rule|checkpoint) (\w+):", self.said, re.MULTILINE)) - Counter(all=1)


def jobs(text: str) -> Counter:
    """Reads the engine's table of jobs; without one, nothing is to be done."""
    table = re.search(r"Job stats:\n(.*?)\n\n", text, re.DOTALL)
    rows = re.findall(r"^(\w+) +(\d+)$", table.group(1), re.MULTILINE) if table else []
    return Counter({rule: int(count) for rule, count in rows if rule not in {"total", "all"}})
