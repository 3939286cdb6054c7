"""What one machine packs, the engine takes for a further device on another."""

MEASURING = {"identify_device", "calibrate_device", "benchmark_cell", "train_model", "profile_model"}


def test_what_one_machine_packs_another_reads(finished, tmp_path):
    checkout = finished.copy(tmp_path / "assay")
    ran = checkout.run("--", "recording")
    assert ran["pack_recording"] == 1
    assert not MEASURING & set(ran)
    assert (checkout.folder / "recordings/tiny/cpu.zip").stat().st_size < 200_000

    checkout.edit(checkout.study, "{id: cpu,", "{id: other,")
    dry = checkout.snakemake("--dry-run")
    assert dry.returncode == 0, dry.stdout + dry.stderr
    assert "recordings/tiny/cpu.zip" in dry.stdout + dry.stderr

    checkout.edit(checkout.study, "n_steps: 12", "n_steps: 13")
    refused = checkout.snakemake("--dry-run")
    assert refused.returncode == 1
    line = (refused.stdout + refused.stderr).strip().splitlines()[-1]
    assert line.startswith("recordings/tiny/cpu.zip: training.n_steps is 12 in the recording and 13 here")
