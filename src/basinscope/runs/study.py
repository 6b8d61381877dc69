"""Study: a list of independent jobs, how to run one (or a population of them), and what to make of the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .identity import job_key
from .records import Record, record

if TYPE_CHECKING:
    from .results import Results
    from .scratch import Scratch

SCALES = ("smoke", "paper")


class Settings(Record):
    """Settings of a study: what `-s key=value` may change. Subclass it; every field needs a default.

    Examples:
        >>> class Sizes(Settings):
        ...     widths: tuple[int, ...] = (8, 16)
        >>> Sizes(widths=[4]).config()
        {'widths': [4]}
    """


class Job(Record):
    """One job: everything that decides its result, the seed included. Subclass it.

    Examples:
        >>> class Training(Job):
        ...     width: int
        ...     seed: int = 0
        >>> Training(width=8).config()
        {'width': 8, 'seed': 0}
    """


@dataclass(frozen=True)
class Result:
    """What a job found: rows of a table, and arrays too large for one.

    Attributes:
        rows: each a mapping from column to a plain value; the job's own settings need not be repeated.
        arrays: by name, numpy arrays or tensors.

    Examples:
        >>> Result([{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}]).rows[1]["loss"]
        0.25
    """

    rows: Sequence[Mapping[str, Any]]
    arrays: Mapping[str, Any] = field(default_factory=dict)


Found = Result | Mapping[str, Any] | Exception  # what a member of a population gave


@dataclass(frozen=True)
class Finding:
    """What a paper shows, and what the study's results show beside it.

    Attributes:
        title: the question, or the paper's figure or table.
        paper: what the paper has, in words and numbers, with its source.
        ours: what these results have, in the same terms.
        verdict: `ok` where they agree, `doubtful` where they do so in part, `failed` where they do not.
        rows: numbers side by side, a mapping from column to value each.

    Examples:
        >>> Finding("Slope of λ̂", "1.00 (Fig. 2)", "0.98 ± 0.01 over 30 runs").verdict
        'ok'
    """

    title: str
    paper: str
    ours: str
    verdict: Literal["ok", "doubtful", "failed"] = "ok"
    rows: Sequence[Mapping[str, Any]] = ()


class Study:
    """Base class of studies.

    A job's result must depend on its config alone: all randomness comes from a seed in it. Each job runs on one
    thread, so that every executor gives the same bits.

    Jobs with the same `group_key` are a population, in the order listed, and handed to `run_group` as a whole.
    Populations are formed from the full list of jobs, finished or not: one that is resumed has the same members as
    before, hence the same bits.

    Attributes:
        name: as on the command line.
        title: one line.
        version: part of every result's address; raise it when the computation changes.
        Settings: class of the study's settings.
        Job: class of a job, or a union of classes that a field tells apart.
        scales: settings by the name of a scale.
        stops_in_time: whether jobs look at `scratch.seconds_left` and leave the rest of their work for the next run.
        gpus: GPUs, or the fraction of one, that a worker wants on a cluster which has any.

    Examples:
        >>> class Power(Job):
        ...     base: int
        >>> class Powers(Study):
        ...     name, title, Job = "powers", "Squares of small numbers", Power
        ...     def jobs(self, settings):
        ...         return [Power(base=base) for base in range(3)]
        ...     def run(self, job, scratch):
        ...         return {"square": job.base**2}
        >>> study = Powers()
        >>> [study.run(job, None)["square"] for job in study.jobs(study.settings())]
        [0, 1, 4]
    """

    name: str
    title: str = ""
    version: int = 1
    Settings: ClassVar[type[Settings]] = Settings
    Job: ClassVar[Any] = Job
    scales: Mapping[str, Mapping[str, Any]] = {"smoke": {}, "paper": {}}
    stops_in_time: bool = False
    gpus: float = 0.0

    def jobs(self, settings: Any) -> Iterable[Any]:
        """The jobs, in the order of the final table."""
        raise NotImplementedError

    def run(self, job: Any, scratch: Scratch) -> Result | Mapping[str, Any]:
        """Run one job; a mapping counts as a result of one row.

        `scratch` keeps partial work of a long job; one that runs out of `scratch.seconds_left` saves and raises
        `Unfinished`.
        """
        raise NotImplementedError

    def group_key(self, job: Any) -> Any:
        """Jobs with equal keys may run as one population; None: this one runs alone."""
        return None

    def run_group(self, jobs: Sequence[Any], scratch: Scratch) -> Sequence[Found] | Iterator[Mapping[int, Found]]:
        """Run a population; one result per job, or the exception that this job met.

        A large one may instead hand out results as they come, each time a mapping from places in `jobs` to results,
        for the places in `scratch.wanted` at least; they are stored at once. It may raise `Unfinished` as a job may.
        """
        return [self.run(job, scratch) for job in jobs]

    def cost(self, job: Any) -> float:
        """How long a job takes relative to the others: long ones start first, and the forecast counts in it."""
        return 1.0

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """Write tables and figures to `folder`; the files written. The joint table is there already."""
        return []

    def findings(self, results: Results) -> Sequence[Finding]:
        """What the results say beside what a paper says; the study's page opens with it."""
        return []

    def settings(self, **values: Any) -> Any:
        """The study's settings with some of them changed."""
        return record(self.Settings, values, f"study {self.name!r}", "setting")

    def job(self, config: Mapping[str, Any]) -> Any:
        """A job from its config."""
        return record(self.Job, config, f"a job of study {self.name!r}", "setting")

    def key(self, config: Mapping[str, Any]) -> str:
        """The address of a job's result."""
        return job_key(self.name, self.version, config)
