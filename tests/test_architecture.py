"""The rules of the house that no linter knows: who may import what."""

import ast
import gc
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.support.run_cli import ranks, there

ROOT = Path(__file__).parents[1]
ALLOWED = {  # where a library may be imported
    "mpi4py": ("p2pkm/network/mpi.py",),
    "numba": ("p2pkm/kernels/numba/",),
    "matplotlib": ("p2pkm/viz/", "p2pkm/deep/figures.py"),
    "click": ("p2pkm/cli/",),
    "rich": ("p2pkm/cli/",),
    "networkx": ("topologies/", "p2pkm/network/graph.py", "p2pkm/metrics/result.py", "p2pkm/storage/save.py"),
    "pandas": (
        "p2pkm/metrics/clusters.py",
        "p2pkm/metrics/result.py",
        "p2pkm/analysis/bench_personal.py",
        "p2pkm/analysis/bench_statistics.py",
        "p2pkm/analysis/explanation.py",
        "p2pkm/experiments/bench/run_bench.py",
        "p2pkm/analysis/study_table.py",
        "p2pkm/data/readers/",
    ),
    "threadpoolctl": ("topologies/single_thread.py",),
    "sklearn": (
        "p2pkm/data/sources.py",
        "p2pkm/metrics/clustering.py",
        "p2pkm/deep/linear_probe.py",
        "p2pkm/experiments/bench/references.py",
        "p2pkm/experiments/simulate.py",
        "p2pkm/experiments/estimators/estimator.py",
        "p2pkm/experiments/estimators/parameters.py",
        "p2pkm/experiments/estimators/rows.py",
        "p2pkm/experiments/estimators/scaler.py",
    ),
    "scipy": (
        "topologies/",
        "p2pkm/methods/",
        "p2pkm/privacy/",
        "p2pkm/analysis/study_table.py",
        "p2pkm/analysis/paired_tests.py",
        "p2pkm/analysis/rank_correlations.py",
        "p2pkm/metrics/clustering.py",
        "p2pkm/core/sorting.py",
        "p2pkm/experiments/estimators/rows.py",
    ),
    "pymetis": ("p2pkm/network/rank_partition.py",),
    "jax": ("p2pkm/deep/",),
    "anndata": ("p2pkm/data/readers/anndata.py",),
    "h5py": ("p2pkm/data/readers/anndata.py",),
    "pyarrow": (
        "p2pkm/data/readers/",
        "p2pkm/data/out_of_core/",
        "p2pkm/data/size_estimate.py",
        "p2pkm/storage/study_folder.py",
    ),
    "pickle": (),
    "joblib": ("p2pkm/experiments/object_content.py", "p2pkm/testing/outer_variables.py"),
    "cloudpickle": ("p2pkm/experiments/object_content.py",),
}
LAZY = (
    "joblib",
    "cloudpickle",
    "jax",
    "anndata",
    "h5py",
    "mpi4py",
    "pandas",
    "pyarrow",
    "pymetis",
    "matplotlib",
    "networkx",
    "sklearn",
    "scipy",
    "rich",
    "threadpoolctl",
)
BLAS = {  # what may reach BLAS or LAPACK, whose bits depend on the number of threads
    "cholesky", "cond", "corrcoef", "cov", "det", "dot", "eig", "eigh", "eigh_tridiagonal", "eigsh", "eigvals",
    "eigvalsh", "einsum", "inner", "inv", "lstsq", "matmul", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv",
    "polyfit", "qr", "silhouette_samples", "silhouette_score",
    "slogdet", "solve", "splu", "spsolve", "svd", "svds", "tensordot", "vdot",
    "LogisticRegression",
}  # fmt: skip
NO_BLAS = {  # calls outside of `single_thread` that are none of BLAS, or whose caller has the limit
    "p2pkm/privacy/pair_leaks.py": {"combine": "within pair_leaks"},
    "p2pkm/methods/building_blocks/private_releases.py": {"_second_moments": "whole numbers, exact in any order"},
    "p2pkm/methods/tree/regrown_tree.py": {"_compare_offers": "whole numbers"},
    "p2pkm/deep/networks.py": {"_apply_linear": "JAX", "_apply_dense": "JAX"},
    "p2pkm/deep/training.py": {"loss": "JAX"},
    "p2pkm/network/ledger.py": {"sums": "whole numbers"},
    "p2pkm/privacy/row_space.py": {"multiply_modulo": "exact products and sums"},
    "p2pkm/analysis/rank_correlations.py": {
        "_permute": "within correlate",
        "_bootstrap": "within correlate",
        "_choose": "within find_predictors",
    },
    "p2pkm/viz/figures/explained.py": {"_draw_panel": "norm of a color scale"},
    "p2pkm/viz/figures/partition.py": {"_draw_map": "norm of a color scale"},
    "p2pkm/viz/figures/study.py": {"_write_cells": "norm of a color scale"},
    "p2pkm/viz/graph_layout.py": {"_choose_plane": "within _embed"},
    "p2pkm/viz/style.py": {"contrast": "three products"},
    "topologies/measures/degrees.py": {"_count_triangles": "whole numbers"},
    "topologies/measures/lanczos.py": {
        "_estimate_spectrum": "sparse matrix",
        "run_three_recurrences": "norm along an axis",
        "sample_spectrum": "sparse matrix",
        "_run_recurrence": "norm and einsum along an axis",
        "find_radius": "sparse matrix",
    },
    "topologies/measures/noise.py": {"residual_noise": "sparse matrix", "_solve": "sparse matrix"},
    "topologies/measures/predictions.py": {"_grow": "sparse matrix", "_find_contraction": "sparse matrix"},
    "topologies/measures/spectral.py": {"laplacian": "sparse matrix"},
    "topologies/measures/time_varying.py": {
        "contraction_per_round": "sparse matrices",
        "apply": "sparse matrices",
        "_propagate_covariance": "sparse matrices",
        "_simulate_process": "sparse matrices",
    },
}
SNIFFED = 3  # in all of p2pkm and topologies
DEMANDED = {  # parents that something outside asks for: click, scikit-learn, matplotlib, a test, a run
    "p2pkm/cli/help.py": {"click.Command", "click.Group"},
    "p2pkm/cli/options.py": {"click.Option"},
    "p2pkm/cli/study.py": {"click.Group"},
    "p2pkm/core/keywords.py": {"ExperimentError", "TypeError"},  # Python's error of unknown keywords
    "p2pkm/data/readers/text_source.py": {"io.TextIOBase"},  # a file that pandas and csv read
    "p2pkm/viz/drawn_text.py": {"RendererAgg"},
    "p2pkm/viz/picture.py": {"Figure"},
    "p2pkm/experiments/estimators/estimator.py": {
        "BaseEstimator",
        "ClassNamePrefixFeaturesOutMixin",
        "ClusterMixin",
        "TransformerMixin",
    },
    "p2pkm/experiments/estimators/scaler.py": {"BaseEstimator", "OneToOneFeatureMixin", "TransformerMixin"},
    "p2pkm/testing/check_transform.py": {"kind"},  # the class under test
    "p2pkm/testing/trial.py": {"AssertionError"},  # pytest shows it as a failure
    "p2pkm/testing/recording.py": {"LocalNetwork", "LocalWorld"},  # a network that takes notes
}
WALKS = {  # stages that walk the same tree: they differ in what goes up, what the root does and what comes down
    "p2pkm/methods/init/tree_rows.py": {"TreeSummaries"},
    "p2pkm/methods/init/imputation.py": {"PairwiseTotals"},
    "p2pkm/methods/init/min_max_scaling.py": {"PairwiseTotals"},
    "p2pkm/methods/init/standardization.py": {"PairwiseTotals"},
    "p2pkm/methods/init/total_variance.py": {"TreeTotals"},
    "p2pkm/methods/init/choose_k.py": {"TreeRows"},
    "p2pkm/methods/init/coupling_trials.py": {"CouplingEstimate", "UpAndDown"},
    "p2pkm/methods/init/tree_groups.py": {"TreeRows"},
    "p2pkm/methods/init/tree_totals.py": {"TreeTotals", "UpAndDown"},
    "p2pkm/methods/peer/private.py": {"PrivateOnGraph"},
    "p2pkm/methods/tree/treelloyd.py": {"TreeLloydOnGraph"},
    "p2pkm/methods/tree/tracking.py": {"TreeLloyd", "SearchingOnGraph"},
    "p2pkm/methods/server/fedlloyd.py": {"TreeLloyd"},
    "p2pkm/methods/server/ditto.py": {"FedLloyd"},
}
AVERAGES = {  # methods that average sums and counts: they differ in the exchange
    "p2pkm/methods/building_blocks/lloyd_by_averages.py": {"LloydByAverages"},
    "p2pkm/methods/peer/consensus.py": {"LloydByAverages"},
    "p2pkm/methods/peer/pushsum.py": {"CountedLloyd"},
    "p2pkm/methods/peer/tracking.py": {"CountedLloyd"},
    "p2pkm/methods/peer/epidemic.py": {"LloydByAverages", "Epidemic"},
    "p2pkm/methods/peer/gossip_sum.py": {"LloydByAverages"},
}
DEEP = {  # the same parameters, with a server and without
    "p2pkm/deep/deepfeca.py": {"DeepMethod"},
    "p2pkm/deep/deepgossip.py": {"DeepMethod"},
}


@cache
def _trees() -> dict[Path, ast.Module]:
    """Parse all modules, in a test: at the import of this one each worker would do it."""
    paths = sorted([*ROOT.glob("p2pkm/**/*.py"), *ROOT.glob("topologies/**/*.py")])
    gc.disable()  # all that is made stays to the end, and the collector would look at it again and again
    try:
        return {path: ast.parse(path.read_text()) for path in paths}
    finally:
        gc.freeze()
        gc.enable()


@cache
def _walk(tree: ast.Module) -> list[ast.AST]:
    """List all nodes of a module."""
    return list(ast.walk(tree))


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _imports(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [name.name.split(".")[0] for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.append(node.module.split(".")[0])
    return found


def _without_type_checking(tree: ast.Module) -> ast.Module:
    body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
    ]
    return ast.Module(body, tree.type_ignores)


def test_libraries_are_imported_only_where_they_belong():
    strays = [
        f"{_relative(path)} imports {name}"
        for path, tree in _trees().items()
        for name in _imports(_without_type_checking(tree))
        if name in ALLOWED and not _relative(path).startswith(ALLOWED[name])
    ]
    assert not strays


def test_heavy_libraries_are_imported_where_they_are_used():
    for path, tree in _trees().items():
        top = _without_type_checking(tree).body
        names = [name for node in top if isinstance(node, (ast.Import, ast.ImportFrom)) for name in _imports(node)]
        lazy = set(LAZY) - ({"sklearn", "matplotlib"} if _relative(path) in DEMANDED else set())
        assert not set(names) & lazy, _relative(path)


def _is_limited(node: ast.AST) -> bool:
    """Return whether a function or block has the limit to one thread."""
    calls = [one.context_expr for one in node.items] if isinstance(node, ast.With) else []
    calls += getattr(node, "decorator_list", [])
    return any(isinstance(one, ast.Call) and getattr(one.func, "id", "") == "single_thread" for one in calls)


def _unlimited(node: ast.AST, function: str = "") -> set[str]:
    """Return the functions in which BLAS may be called without the limit to one thread."""
    if _is_limited(node):
        return set()
    function = node.name if isinstance(node, ast.FunctionDef) else function
    found = {name for child in ast.iter_child_nodes(node) for name in _unlimited(child, function)}
    product = isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.MatMult)
    called = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
    return found | {function} if product or called in BLAS else found


def test_blas_is_called_on_one_thread():
    """Results must not depend on the number of threads: `single_thread`, or an order of sums of our own."""
    found = {_relative(path): names for path, tree in _trees().items() if (names := _unlimited(tree))}
    assert found == {path: set(names) for path, names in NO_BLAS.items()}


def test_nothing_inherits_but_protocols_tuples_errors_methods_and_transforms():
    errors = {"Exception", "ValueError", "GraphError", "P2PKMError"}
    methods = {"MethodTraits", "MethodBase", "Objective", "OnGraph", "ServerMethodBase"}
    allowed = (
        {"ABC"}
        | errors
        | methods
        | {
            "Protocol",
            "NamedTuple",
            "Enum",
            "Flag",
            "IntEnum",
            "Transform",
            "PlacedOnGraph",
            "ReshapesMethod",
            "SavesItself",
            "Design",
            "Series",
            "Sweep",
        }
        | {"CheckError"}
    )
    exempt = {(place, base) for table in (DEMANDED, WALKS, AVERAGES, DEEP) for place in table for base in table[place]}
    used = set()
    for path, tree in _trees().items():
        for node in _walk(tree):
            if isinstance(node, ast.ClassDef):
                extra = {(_relative(path), ast.unparse(base)) for base in node.bases}
                used |= extra & exempt
                assert {base for _, base in extra - exempt} <= allowed, f"{_relative(path)}: {node.name}"
    # Nothing is left of a file that was removed.
    left = exempt - used
    assert not left


FOREIGN = {  # sniffing at what somebody else hands over, or at the system
    "p2pkm/channel/saved_attributes.py",  # an attribute of a plug-in's transform
    "p2pkm/channel/transform.py",  # a plug-in's class
    "p2pkm/testing/check_method.py",  # a parameter of a plug-in's method
    "p2pkm/testing/check_metric.py",  # what is given as a metric
    "p2pkm/testing/check_transform.py",  # what is given as a transform
    "p2pkm/cli/algorithms.py",  # functools.partial
    "p2pkm/cli/main.py",  # click
    "p2pkm/core/mpi_environment.py",  # os
    "p2pkm/core/program_function.py",  # a function of a program
    "p2pkm/core/validation.py",  # a sparse matrix, a masked array
    "p2pkm/data/identifiers.py",  # a column of pandas, polars or Arrow
    "p2pkm/data/readers/anndata.py",
    "p2pkm/data/readers/frame.py",  # a table of pandas, polars or Arrow
    "p2pkm/data/readers/text_source.py",  # a cell of a spreadsheet, an OSError
    "p2pkm/experiments/estimators/scaler.py",  # a sparse matrix
    "p2pkm/kernels/numba/threads.py",  # os
    "p2pkm/network/link_model.py",  # a networkx graph
    "p2pkm/storage/run_folder.py",  # an OSError
    "p2pkm/analysis/study_table.py",  # a pandas table
    "topologies/checks.py",  # a networkx graph
    "topologies/single_thread.py",  # os, threadpoolctl
    "topologies/io/matrices.py",  # a scipy matrix
    "topologies/measures/types.py",  # a graph in arrays of another package, such as p2pkm
    "topologies/io/objects.py",  # graphs and matrices of other packages
    "topologies/registry.py",  # a plug-in's function
}


def test_nobody_looks_for_attributes_of_our_objects():
    """`hasattr`, or `getattr` with a default; a field by its name, as in a loop over parameters, must be there."""
    found = [
        f"{_relative(path)}:{node.lineno}"
        for path, tree in _trees().items()
        for node in _walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) > 2)
    ]
    ours = [place for place in found if place.partition(":")[0] not in FOREIGN]
    assert len(ours) <= SNIFFED, ours
    assert not FOREIGN - {place.partition(":")[0] for place in found}


def _module(path):
    return _relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _own_imports():
    """Return (module, imported module) of every import between our own modules, lazy and type-only ones included."""
    modules = {_module(path) for path in _trees()}
    found = set()
    for path, tree in _trees().items():
        for node in _walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = {f"{node.module}.{name.name}" for name in node.names}
                found |= {(_module(path), name if name in modules else node.module) for name in names}
            elif isinstance(node, ast.Import):
                found |= {(_module(path), name.name) for name in node.names}
    return {(source, target) for source, target in found if target in modules and source != target}


def test_imports_have_no_circle():
    import networkx as nx

    circles = [sorted(part) for part in nx.strongly_connected_components(nx.DiGraph(_own_imports())) if len(part) > 1]
    assert not circles


def test_both_forms_of_a_kernel_have_the_same_parameters():
    import inspect

    from p2pkm.kernels import numba as compiled
    from p2pkm.kernels import reference as plain

    for name in compiled.__all__:
        one, other = getattr(plain, name), getattr(compiled, name)
        other = getattr(other, "py_func", other)
        assert list(inspect.signature(one).parameters) == list(inspect.signature(other).parameters), name


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import p2pkm, topologies", "numpy scipy networkx numba mpi4py click rich matplotlib sklearn"),
        (
            "import p2pkm.cli; p2pkm.cli.main(['--help'])",
            "numpy scipy networkx numba mpi4py rich matplotlib sklearn",
        ),
        ("import p2pkm.experiments.simulate", "scipy networkx numba mpi4py rich matplotlib sklearn click"),
        ("import p2pkm.experiments.run", "scipy networkx numba mpi4py rich matplotlib sklearn"),
        (
            "import tempfile, p2pkm.cli; p2pkm.cli.main(['--graph=ring', '--no-plot', '-q', '--force', "
            "'--out', tempfile.mkdtemp()])",
            "scipy networkx numba mpi4py rich.progress matplotlib sklearn numpy.ma logging topologies.io "
            "p2pkm.data.out_of_core.index p2pkm.data.readers.any_format p2pkm.data.stream p2pkm.analysis.study_table",
        ),
    ],
)
def test_what_an_import_costs(statement, absent):
    program = f"import sys; {statement}; print('LOADED', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split("LOADED")[1].split())
    assert not loaded & set(absent.split())


WORKER = {  # what of the program the ranks other than rank 0 load: the command line's entry, and what runs a method
    "p2pkm.cli": ("main",),
    "p2pkm.core": (),
    "p2pkm.kernels": (),
    "p2pkm.data": ("identifiers", "shards", "table"),
    "p2pkm.network": (),
    "p2pkm.methods": (),
    "p2pkm.channel": (),
    "p2pkm.metrics": (),
    "p2pkm.engine": (),
    "p2pkm.experiments": ("config", "worker"),
    "topologies": ("checks", "csr_graph", "errors", "mixing", "plugins", "single_thread", "validation"),
}

UNUSED = {  # what the main run must not load on these ranks: each module costs time on all ranks
    "p2pkm.channel.byzantine", "p2pkm.channel.fault_model", "p2pkm.channel.fault_trace", "p2pkm.channel.faults",
    "p2pkm.channel.sampled_faults", "p2pkm.channel.stale_policy", "p2pkm.channel.timed_faults",
    "p2pkm.channel.timed_trace", "p2pkm.core.arithmetic_coder",
    "p2pkm.engine.event_driven", "p2pkm.engine.virtual_time", "p2pkm.kernels.cache_lock", "p2pkm.network.link_model",
    "p2pkm.methods.building_blocks.number_of_clusters", "p2pkm.methods.init.bounding_box", "p2pkm.methods.init.lean",
    "p2pkm.methods.init.tree_groups", "p2pkm.methods.init.tree_rows",
    "csv", "difflib", "fractions", "logging", "numpy.ma", "pathlib", "secrets", "statistics", "uuid",
    "scipy", "networkx", "numba", "pandas", "pyarrow", "matplotlib", "click", "rich", "sklearn", "jax",
}  # fmt: skip


def _find_strays(loaded):
    """Find modules that no worker may load; packages of the program without a list may be loaded as a whole."""
    strays = sorted(UNUSED & set(loaded))
    for name in (name for name in loaded if name.startswith(("p2pkm", "topologies"))):
        home = next((package for package in WORKER if name.startswith(f"{package}.")), "")
        rest, allowed = name[len(home) + 1 :], WORKER.get(home, ())
        known = name in {"p2pkm", *WORKER} or any(f"{one}.".startswith(f"{rest}.") for one in allowed)
        if not (known or (home and not allowed)):
            strays.append(name)
    return strays


def test_a_worker_imports_what_it_runs():
    program = "import sys, p2pkm.cli.main, p2pkm.experiments.worker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert _find_strays(done.stdout.split()) == []


@pytest.mark.mpi
def test_a_worker_has_imported_no_more_when_the_main_run_ends(tmp_path):
    program = (
        "import sys; from p2pkm.cli.main import main; from p2pkm.core.mpi_environment import expected_rank; "
        "main(sys.argv[2:]); open(f'{sys.argv[1]}/{expected_rank()}', 'w').write(' '.join(sys.modules))"
    )
    # Two devices per rank, as few as in the main run: more would use numba.
    run = ["--graph", "ring", "--devices", "6", "--no-plot", "-q", "--out", "none", "--rounds", "3"]
    done = there(*ranks(3), "-c", program, tmp_path, *run)
    assert done.code == 0, done.err
    for rank in ("1", "2"):
        assert _find_strays((tmp_path / rank).read_text().split()) == []


def test_the_top_level_holds_what_the_architecture_says():
    files = set(
        subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    )
    if not files:
        pytest.skip("not a git checkout: the list of tracked files is not known")
    known = set(
        ".ci .github .gitignore ARCHITECTURE.md CHANGELOG.md CITATION.cff CODE_OF_CONDUCT.md CONTRIBUTING.md LICENSE "
        "README.md SECURITY.md docs examples launch p2pkm paper.bib paper.md pyproject.toml tests topologies".split()
    )
    assert {name.split("/")[0] for name in files} <= known


def test_dependencies_have_lower_bounds_only():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    for requirement in (one for group in groups for one in group):
        assert "<" not in requirement and "==" not in requirement, requirement


@pytest.mark.slow
def test_every_kernel_is_compiled_for_one_set_of_types():
    """A second layout of an array would compile, and on every start read, the same kernel twice."""
    program = (
        "import numba\n"  # without it so few points are left to the plain form
        "from p2pkm.cli.main import main\n"
        "common = ['-q', '--no-plot', '--out', 'none', '--format', 'json', '--devices', '4', '--data',"
        " 'grid16:points=5']\n"
        "for extra in ('--seed=1', '--init=d2-sampling', '--init=leader', '--init=tree-summaries:candidates=2',"
        " '--scale=standard', '--robust=trim', '--byzantine=1'):\n"
        "    main([*common, extra])\n"
        "from p2pkm.kernels import compile_ahead, numba as compiled\n"
        "compile_ahead()\n"
        "print('COUNTS', *(f'{name}={len(compiled.entry(name).signatures)}' for name in compiled.__all__))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=True)
    counts = done.stdout.split("COUNTS ")[1].split()
    assert all(count.endswith("=1") for count in counts), counts


def test_text_is_parsed_at_the_door():
    """Specs become values where a user hands them over; nothing below sees text."""
    door = {
        "p2pkm.channel.byzantine",  # Byzantine.of
        "p2pkm.channel.sampled_faults",  # Faults.of
        "p2pkm.channel.compression",  # Compression.of
        "p2pkm.channel.quantization",  # Quantization.of
        "p2pkm.channel.registry",  # --transforms
        "p2pkm.methods.init.value",  # Init.of
        "p2pkm.network.client_share",  # ClientShare.of
        "p2pkm.network.link_model",  # LinkModel.of
        "p2pkm.channel.stale_policy",  # StalePolicy.of
        "p2pkm.experiments.config",  # graph, partition, algorithm
        "p2pkm.experiments.estimators.parameters",
        "p2pkm.privacy.run_attack",  # `attack`
        "p2pkm.experiments.graphs.graph_report",  # `topology`
        "p2pkm.privacy.leak_report",  # `topology leaks`
        "p2pkm.experiments.graphs.write_fault_trace",  # `faults`
        "p2pkm.data.sources",  # --data
        "p2pkm.data.synthetic_device_clusters",  # graph of device_clusters
        "p2pkm.data.stream",  # DataStream.of
    }
    parsing = {
        _module(path)
        for path, tree in _trees().items()
        for node in _walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "p2pkm.core.spec"
        for name in node.names
        if name.name in {"parse", "read_value", "read_drawn"}
    }
    assert parsing == door
