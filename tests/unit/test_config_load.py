"""The configuration file: every error with its place, all at once; nothing guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.config.errors import ConfigError, nearest
from headway.config.load import load_config, load_model_settings
from headway.config.settings import Settings


def problems_of(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "headway.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    return [str(problem).removeprefix(f"{path}: ") for problem in caught.value.problems]


def test_no_file_means_that_everything_is_default() -> None:
    assert load_config(None).settings == Settings()


def test_the_defaults_are_safe() -> None:
    server = Settings().server
    assert (server.host, server.allow_remote_admin) == ("127.0.0.1", False)


def test_what_the_file_says_is_what_one_gets(tmp_path: Path) -> None:
    path = tmp_path / "headway.toml"
    path.write_text("[server]\nport = 9000\nshutdown_grace_s = 2\n[models.m.batching]\nhold = true\n")
    settings = load_config(path).settings
    assert (settings.server.port, settings.server.shutdown_grace_s) == (9000, 2.0)
    assert settings.models["m"].batching.hold


def test_an_unknown_setting_is_named_with_the_one_most_likely_meant(tmp_path: Path) -> None:
    assert problems_of(tmp_path, "[server]\nprot = 80") == ["server.prot: unknown setting; did you mean 'port'?"]


def test_a_setting_in_the_wrong_table_is_pointed_to_its_own(tmp_path: Path) -> None:
    assert problems_of(tmp_path, "port = 80") == ["port: unknown setting; did you mean 'server.port'?"]


def test_a_name_that_is_like_no_other_gets_the_list_of_names(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, "[recorder]\nqqq = 1")
    assert problem == "recorder.qqq: unknown setting; known here: directory, max_file_mb, max_files"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[server]\nport = 70000", "server.port: expected an integer >= 0 and <= 65535, got 70000"),
        ("[server]\nport = true", "server.port: expected an integer >= 0 and <= 65535, got true"),
        ("[server]\nhost = 1", "server.host: expected a string, got 1"),
        ("[server]\nthreads = 1.5", "server.threads: expected an integer >= 0, got 1.5"),
        ("server = 3", "server: expected a table [server], got 3"),
        ("tenants = []", "tenants: expected a table [tenants], got []"),
        ("[limits]\nmax_body_mb = inf", "limits.max_body_mb: expected a number > 0, got inf"),
        ("[limits]\nmax_body_mb = nan", "limits.max_body_mb: expected a number > 0, got nan"),
        ("[tenants.a]\nweight = 0", "tenants.a.weight: expected a number > 0, got 0"),
        ('[tenants."a b"]\nweight = 0', 'tenants."a b".weight: expected a number > 0, got 0'),
        ("[models.m]\nmax_attempts = 0", "models.m.max_attempts: expected an integer >= 1, got 0"),
        ("[models.m]\nhang_s = -1", "models.m.hang_s: expected a number >= 0, got -1"),
        ("[models.m]\nquarantine_s = inf", "models.m.quarantine_s: expected a number >= 0, got inf"),
        ("[models.m]\nidempotent = 0", "models.m.idempotent: expected true or false, got 0"),
        (
            "[models.m]\nexecutor = 'tf'",
            'models.m.executor: expected one of "", "llm", "onnx", "python", "torch", got \'tf\'',
        ),
        (
            "[models.m.batching]\nmax_batch_size = 'x'",
            "models.m.batching.max_batch_size: expected an integer >= 1, got 'x'",
        ),
        (
            "[scheduling]\npatience_ms = 5",
            "scheduling.patience_ms: expected a list, each entry a number >= 0; got 5",
        ),
        ("[scheduling]\npatience_ms = [1, -2]", "scheduling.patience_ms[1]: expected a number >= 0, got -2"),
        (
            "[scheduling]\npatience_ms = []",
            "scheduling.patience_ms: expected at least one class of priority, got an empty list",
        ),
    ],
)
def test_a_wrong_value_is_told_with_what_was_expected(tmp_path: Path, text: str, problem: str) -> None:
    assert problems_of(tmp_path, text) == [problem]


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    text = "[server]\nprot = 1\nport = -1\n[limits]\nmax_parts = 0\n[models.m.embeddings]\nmax_len = 3\n"
    places = [problem.split(":")[0] for problem in problems_of(tmp_path, text)]
    assert places == ["server.prot", "server.port", "limits.max_parts", "models.m.embeddings.max_len"]


def test_the_value_of_an_unknown_setting_is_never_repeated(tmp_path: Path) -> None:
    assert "hunter2" not in "".join(problems_of(tmp_path, "[server]\napi_secret = 'hunter2'"))


def test_a_long_value_is_cut_short(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, f"[server]\nport = '{'x' * 500}'")
    assert len(problem) < 150


def test_text_that_is_not_toml_is_told_with_its_line(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, "[server]\nport = \n")
    assert problem == "line 2, column 8: not valid TOML: Invalid value"


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config(tmp_path / "absent.toml")


def test_bytes_that_are_not_text_are_a_configuration_error(tmp_path: Path) -> None:
    path = tmp_path / "headway.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="expected UTF-8"):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[limits]\nmax_body_mb = 64\nmax_queued_mb = 32", "limits.max_queued_mb"),
        ("[limits]\nmax_body_mb = 8\nmax_json_mb = 16", "limits.max_json_mb"),
        ("[idempotency]\nmax_mb = 0.5\nmax_reply_kb = 600", "idempotency.max_reply_kb"),
        ("[workers]\nbackoff_s = 5\nmax_backoff_s = 1", "workers.max_backoff_s"),
        ("[server]\nssl_keyfile = 'k'", "server.ssl_keyfile"),
        ("[server]\nunix_socket = 's'\nssl_certfile = 'c'", "server.unix_socket"),
        ("[server]\nunix_socket_mode = '888'", "server.unix_socket_mode"),
        ("[server]\ntrusted_proxies = ['unix', '10.0.0.1/8']", "server.trusted_proxies[1]"),
        ("[server]\ncors_origins = ['https://a.example/path']", "server.cors_origins[0]"),
        ("[scheduling]\npatience_ms = [100, 10]", "scheduling.patience_ms"),
        ("[tenants.acme]\nweight = 2", "tenants"),
        ("tenant_header = 'x tenant'", "tenant_header"),
        ("[models.m]\ndevice = 'gpu'", "models.m.device"),
        ("[models.m]\ndevice = 'cuda:0'\ncores = 2", "models.m.cores"),
        ("[models.m.batching]\nmax_batch_size = 64\nmax_queued_rows = 32", "models.m.batching.max_queued_rows"),
        (
            "[models.m]\nslo_ms = 5\n[models.m.batching]\nhold = true\nmax_queue_delay_ms = 5",
            "models.m.batching.max_queue_delay_ms",
        ),
        ("[models.m.warm_up]\nrows = [64]", "models.m.warm_up.rows"),
        ("[models.m.embeddings]\n[models.m.warm_up]\nlengths = [512]", "models.m.warm_up.lengths"),
        ("[models.m]\nbatch_invariant = true\n[models.m.inputs.x]", "models.m.max_length"),
        (
            "[models.m]\nmax_length = 8\n[models.m.inputs.x]\n[models.m.warm_up]\nlengths = [9]",
            "models.m.warm_up.lengths",
        ),
        ("[models.m]\nmax_length = 8\n[models.m.inputs.x]\n[models.m.embeddings]", "models.m.embeddings.max_length"),
        ("[models.m.bounds.x]", "models.m.bounds.x"),
        ("[models.m.bounds.x]\nminimum = 2\nmaximum = 1", "models.m.bounds.x"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tmp_path: Path, text: str, place: str) -> None:
    assert [problem.split(": ")[0] for problem in problems_of(tmp_path, text)] == [place]


def test_a_held_delay_that_is_derived_cannot_contradict_the_slo(tmp_path: Path) -> None:
    path = tmp_path / "headway.toml"
    path.write_text("[models.m]\nslo_ms = 5\n[models.m.batching]\nhold = true")
    load_config(path)


def test_relative_paths_count_from_the_files_folder(tmp_path: Path) -> None:
    path = tmp_path / "headway.toml"
    path.write_text("[server]\nmodels = 'm'\n")
    assert load_config(path).models_dir == tmp_path / "m"


def test_a_missing_model_toml_is_fine(tmp_path: Path) -> None:
    settings, problems = load_model_settings(tmp_path / "model.toml", {})
    assert settings is not None and problems == []


def test_the_servers_overrides_replace_a_models_settings_table_by_table(tmp_path: Path) -> None:
    path = tmp_path / "model.toml"
    path.write_text("instances = 2\nslo_ms = 50\n[batching]\nmax_batch_size = 8\nhold = true\n")
    settings, _ = load_model_settings(path, {"slo_ms": 70, "batching": {"max_batch_size": 4}})
    assert settings is not None
    assert (settings.instances, settings.slo_ms) == (2, 70)
    assert (settings.batching.max_batch_size, settings.batching.hold) == (4, False)


def test_what_only_the_override_makes_wrong_is_still_found(tmp_path: Path) -> None:
    path = tmp_path / "model.toml"
    path.write_text("[warm_up]\nrows = [16]\n")
    settings, problems = load_model_settings(path, {"batching": {"max_batch_size": 4}})
    assert settings is None and [problem.place for problem in problems] == ["warm_up.rows"]


def test_options_are_handed_on_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "model.toml"
    path.write_text("[options]\nanything = [1, 'two', {three = 3}]\n")
    settings, _ = load_model_settings(path, {})
    assert settings is not None and settings.options == {"anything": [1, "two", {"three": 3}]}


def test_the_nearest_name_is_found_through_case_and_dashes() -> None:
    assert nearest("Max-Batch-Size", ["max_batch_ms", "max_batch_size"]) == "max_batch_size"
    assert nearest("zzz", ["max_batch_size"]) is None


def test_the_inputs_of_a_torchscript_file_are_declared_as_the_documents_say(tmp_path: Path) -> None:
    path = tmp_path / "model.toml"
    path.write_text('[torch.inputs]\nx = ["FP32", [-1, 4]]\n')
    settings, problems = load_model_settings(path, {})
    assert settings is not None, problems
    assert settings.torch.inputs == {"x": ("FP32", (-1, 4))}


@pytest.mark.parametrize("wrong", ["3", '["FP32"]', '["FP32", 4]', '["FP32", [-1, "four"]]', "[1, [-1]]"])
def test_a_wrong_declaration_of_an_input_is_named_with_what_was_expected(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "model.toml"
    path.write_text(f"[torch.inputs]\nx = {wrong}\n")
    settings, problems = load_model_settings(path, {})
    assert settings is None
    assert all("torch.inputs.x" in str(problem) and "expected" in str(problem) for problem in problems)
