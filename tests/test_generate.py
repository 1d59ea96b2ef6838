"""Sampling outside of the trainer: the same distribution, another random stream."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from grpo_kit.console import Console
from grpo_kit.evaluation.evaluate import evaluate
from grpo_kit.model.generate import batch_seed, most_likely, prompt_batches, sample_batch, sampling_config
from grpo_kit.prepare.prepare import prepare
from grpo_kit.recipe.recipe import load_recipe
from grpo_kit.rewards.scoring import Scorer
from grpo_kit.run.record import Recorder
from grpo_kit.run.run_dir import RunDir
from grpo_kit.run.stop import StopRequest
from grpo_kit.train import Stopper, build_trainer

DATA = Path(__file__).parents[1] / "recipes" / "data"


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generate")
    (folder / "r.yaml").write_text(
        f"model: builtin:tiny\ndataset: {{path: {DATA}/sums_train.jsonl, prompt: '{{question}}', limit: 30}}\n"
        "rewards: {accuracy: 1.0}\n"
        "grpo: {max_completion_length: 12, temperature: 0.9, top_p: 0.95, top_k: 7, min_p: 0.01,"
        " repetition_penalty: 1.1, num_generations: 4, per_device_train_batch_size: 8,"
        " gradient_accumulation_steps: 1, max_steps: 1}\n"
    )
    prepared = prepare(load_recipe(folder / "r.yaml"))
    run = RunDir(folder)
    recorder = Recorder(prepared, run, Console())
    trainer = build_trainer(
        prepared, Scorer(prepared.rewards), run, recorder.on_rollout, [recorder, Stopper(StopRequest())]
    )
    return prepared, trainer


def test_the_sampler_is_the_trainers_own(setup):
    prepared, trainer = setup
    ours = sampling_config(prepared.args, prepared.chat, 12).to_dict()
    theirs = trainer.generation_config.to_dict()
    assert ours == theirs


def drawn(setup, rows, config, samples=2, seed=1, at_once=8):
    """By its index the samples of each row, so many completions at once."""
    prepared, trainer = setup
    return {
        sampled.row: sampled
        for number, batch in enumerate(prompt_batches(prepared.chat, rows, at_once // samples))
        for sampled in sample_batch(
            trainer.model, prepared.chat, prepared.device, rows, batch, config, samples=samples,
            seed=batch_seed(seed, number),
        )
    }  # fmt: skip


def draw(setup, seed=1, samples=2):
    prepared, _ = setup
    config = sampling_config(prepared.args, prepared.chat, 12)
    return drawn(setup, prepared.data.rows[:5], config, samples, seed)


def test_a_seed_repeats_and_another_does_not(setup):
    first, again, other = draw(setup), draw(setup), draw(setup, seed=2)
    assert first == again
    assert first != other


def test_the_global_random_stream_is_untouched(setup):
    before = torch.get_rng_state()
    draw(setup)
    assert torch.equal(before, torch.get_rng_state())


def test_every_row_comes_with_its_samples_cut_at_the_end(setup):
    prepared, _ = setup
    found = draw(setup, samples=3)
    assert sorted(found) == [0, 1, 2, 3, 4]
    for s in found.values():
        assert len(s.completion_ids) == 3
        for ids, truncated in zip(s.completion_ids, s.truncated, strict=True):
            assert all(token not in prepared.chat.end_ids for token in ids[:-1])
            assert truncated == (ids[-1] not in prepared.chat.end_ids)
            assert len(ids) <= 12
            assert not truncated or len(ids) == 12


def test_completions_belong_to_their_prompts(setup):
    """Ragged prompts are sorted and padded; greedy answers must be those of each prompt alone."""
    prepared, _ = setup
    config = most_likely(sampling_config(prepared.args, prepared.chat, 12))
    config.repetition_penalty = 1.0
    rows = [{"prompt": [{"role": "user", "content": text}]} for text in ("What is 20+20?", "What is 3+4?", "12+7?")]

    def greedy(rows):
        return {at: s.completion_ids for at, s in drawn(setup, rows, config, samples=1).items()}

    together = greedy(rows)
    assert [together[i] for i in range(3)] == [greedy([row])[0] for row in rows]


def test_a_measurement_stops_when_told(setup):
    prepared, trainer = setup
    answers = iter([True, False])
    held_out = replace(prepared, eval_data=prepared.data)
    scorer = Scorer(prepared.rewards)
    assert evaluate(held_out, trainer.model, 0, scorer=scorer, go_on=lambda: next(answers)) is None
    assert not list(answers)
