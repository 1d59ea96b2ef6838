"""Each symptom: what it tells apart, what it leaves alone, and what it says to change."""

from dataclasses import replace

import pytest
from histories import FACTS, FAULTS, STEPS, Made, changed, farming, healthy, overfitted, planted, ramp, stagnant, stuck
from whole_run import RECIPE

from grpo_kit.diagnosis.chance import groups_of, steps_beyond_chance
from grpo_kit.diagnosis.diagnose import NAMES, diagnose
from grpo_kit.diagnosis.findings import Facts
from grpo_kit.diagnosis.history import History
from grpo_kit.recipe.file import parse_yaml
from grpo_kit.recipe.recipe import recipe_of


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_fault_is_named_with_where_to_read_more(name):
    made, strengths, _ = FAULTS[name]
    finding = made(0, 60, strengths[3]).found()[name]
    assert finding.reference == f"docs/doctor.md#{name}"
    assert finding.since <= 80
    assert finding.evidence
    assert finding.cause
    assert finding.change


def all_findings():
    """Every planted fault at its strongest, under settings that lead to different remedies."""
    variants = [FACTS, replace(FACTS, loss_type="grpo", updates=4.0, beta=0.0, lora=False), replace(FACTS, updates=1.0)]
    for name, (made, strengths, _) in FAULTS.items():
        for facts in variants:
            yield from (f for f in made(0, 60, strengths[3]).found(facts).values() if f.name == name)


def test_what_is_to_be_pasted_is_accepted_by_a_recipe(tmp_path):
    (tmp_path / "sums.yaml").write_text(RECIPE + "lora: {r: 4}\n")
    overrides = {finding.override for finding in all_findings() if finding.override}
    assert len(overrides) > 10
    for override in overrides:
        tree, lines = parse_yaml(tmp_path / "sums.yaml")
        assert " " not in override
        recipe_of(tree, lines, tmp_path / "sums.yaml", [override])


def test_a_reward_whose_weight_is_all_that_is_written_takes_an_override(tmp_path):
    tree, lines = parse_yaml(_written(tmp_path, RECIPE))
    override = "rewards.accuracy.weight=0.25"
    assert recipe_of(tree, lines, tmp_path / "sums.yaml", [override]).rewards["accuracy"].weight == 0.25


def _written(folder, text):
    (folder / "sums.yaml").write_text(text)
    return folder / "sums.yaml"


def test_which_reward_is_farmed_since_when():
    for rise in (0.3, 0.7):
        finding = farming(1, 30, rise).found(at=60)["farmed-reward"]
        assert finding.reward == "format"
        assert "from format; accuracy stays at 0.3" in finding.evidence
        assert 30 <= finding.since <= 45
        assert finding.override == "rewards.format.weight=0.075"  # a quarter of 0.3


def test_a_reward_that_rises_with_the_goal_is_not_farmed():
    assert "farmed-reward" not in healthy(1).found()


def with_metrics(facts=FACTS, at=STEPS, **metrics):
    return changed(0, 1, lambda step, since: metrics).found(facts, at)


def test_entropy_that_falls_while_answers_get_right_is_learning():
    def falling(step, since):
        return {"kit/entropy": 0.3 if since < 0 else 0.01}

    assert "entropy-collapse" not in changed(0, 20, falling).found()
    assert "entropy-collapse" in changed(0, 20, lambda step, since: {**stuck(step), **falling(step, since)}).found()


def test_the_remedy_of_a_collapse_depends_on_whether_anything_is_clipped():
    run = FAULTS["entropy-collapse"][0](0, 60, 0.01)
    assert run.found()["entropy-collapse"].override == "grpo.epsilon_high=0.28"  # two updates per rollout
    once = run.found(replace(FACTS, updates=1.0))["entropy-collapse"]
    assert once.override == "grpo.learning_rate=2e-06"  # the ratio is 1, so nothing is ever clipped


def test_a_spike_of_kl_and_a_steady_climb_are_told_apart():
    spike = planted(0, 100, lambda step, since: {"kl": 9.0} if since < 3 else {}).found(at=101)["kl"]
    assert "a spike" in spike.evidence
    assert spike.override == "grpo.learning_rate=2e-06"
    climb = changed(0, 1, lambda step, since: {"kl": 0.03 * since}).found()["kl"]
    assert "a steady climb" in climb.evidence
    assert climb.override == "grpo.beta=0.08"  # twice the 0.04 of the recipe


def test_clipping_by_many_updates_and_by_large_ones_are_told_apart():
    run = FAULTS["clipping"][0](0, 60, 0.9)
    assert run.found()["clipping"].override == "grpo.learning_rate=2e-06"
    often = run.found(replace(FACTS, updates=4.0, iterations=2.0))["clipping"]
    assert often.override == "grpo.num_iterations=1"
    once = run.found(replace(FACTS, updates=4.0, iterations=1.0))["clipping"]  # many micro-batches, each used once
    assert once.override == "grpo.learning_rate=2e-06"


def test_which_loss_drives_length_and_which_reward():
    run = FAULTS["length-growth"][0](0, 60, 8)
    assert run.found()["length-growth"].override is None
    assert run.found(replace(FACTS, loss_type="grpo"))["length-growth"].override == "grpo.loss_type=dr_grpo"
    paid = stagnant(
        0,
        60,
        lambda step, since: {
            "completions/mean_length": 50 + 250 * ramp(since),
            "rewards/format/mean": 0.2 + 0.7 * ramp(since),
        },
    )
    finding = paid.found()["length-growth"]
    assert (finding.reward, finding.override) == ("format", "rewards.format.weight=0.075")


def test_longer_completions_that_get_better_are_left_alone():
    grown = changed(0, 40, lambda step, since: {"completions/mean_length": 50 + 250 * ramp(since, 20)})
    assert "length-growth" not in grown.found()


def test_cut_completions_of_a_policy_that_is_lost_need_no_larger_budget():
    def lost(step, since):
        return {"kit/truncated_share": 0.9, "kit/accuracy": 0.01, "rewards/accuracy/mean": 0.01} if since >= 0 else {}

    found = changed(0, 12, lost).found(at=20)["truncation"]
    assert "no longer come to an end, and accuracy has gone from" in found.cause
    assert found.override == "grpo.learning_rate=2e-06"
    found = changed(0, 12, lambda step, since: {"kit/truncated_share": 0.9} if since >= 0 else {}).found(at=20)
    assert found["truncation"].override == "grpo.max_completion_length=800"


def test_an_explosion_of_entropy_is_seen_early_in_a_run():
    noisy = changed(0, 5, lambda step, since: {"kit/entropy": 2.0 if since >= 0 else 0.3})
    finding = noisy.found(at=7)["entropy-explosion"]
    assert (finding.since, finding.evidence) == (5, "entropy 0.30 -> 2.00 nats a token")
    assert not noisy.found(at=6)


def test_rewards_that_time_out_and_that_return_none_are_told_apart():
    share = {"kit/rewards/accuracy/unscored_share": 0.5}

    def later(**metrics):
        return planted(0, 60, lambda step, since: {**share, **metrics}).found()

    late = later(**{"kit/rewards/accuracy/timeout_share": 0.5})["unscored"]
    assert late.reward == "accuracy"
    assert late.evidence == "accuracy did not judge 50% of completions, 50% for its time limit"
    assert "TIME_LIMIT_S" in late.change
    assert "returns None" in later()["unscored"].change
    assert "unscored" in with_metrics(**share, **{"kit/rewards/accuracy/timeout_share": 0.5})
    assert "unscored" not in with_metrics(**share)  # from the first step on: a reward of one of two tasks


def test_another_reward_may_lead_where_the_goal_is_reached():
    share = {"kit/rewards/format/variance_share": 0.95}
    good = {"kit/accuracy": 0.96, "rewards/accuracy/mean": 0.96}
    assert "dominating-reward" not in with_metrics(**share, **good)
    leads = with_metrics(**share, **{"kit/accuracy": 0.3})["dominating-reward"]
    assert (leads.reward, leads.override) == ("format", "rewards.format.only_if=accuracy")
    hopeless = with_metrics(**share, **{"kit/accuracy": 0.01})["dominating-reward"]  # only_if would leave no gradient
    assert hopeless.override == "rewards.format.weight=0.075"
    falling = [{**step, "reward": 1.0 - step["step"] / STEPS} for step in healthy(1).steps]
    lost = Made(tuple({**step, **share, "kit/accuracy": 0.3} for step in falling), ())
    assert "dominating-reward" not in lost.found()  # all of it is being lost: a consequence


def test_noise_is_amplified_by_the_group_alone():
    noisy = {"kit/small_spread_share": 0.5, "kit/rewards/format/small_spread_share": 0.5}
    finding = with_metrics(**noisy)["amplified-noise"]
    assert (finding.reward, finding.override) == ("format", "grpo.scale_rewards=batch")
    assert "amplified-noise" not in with_metrics(replace(FACTS, scale_rewards="batch"), **noisy)


def test_a_peak_that_was_passed_and_rows_learned_by_heart_are_told_apart():
    passed = overfitted(1, 60, 0.3).found()["overfitting"]
    assert passed.override.startswith("grpo.max_steps=")
    assert "held-out accuracy was" in passed.evidence
    run = healthy(1)
    level = run.evaluations[0]
    never = Made(run.steps, tuple({**level, "step": step} for step in range(0, STEPS, 10)))
    finding = never.found()["overfitting"]
    assert "accuracy in training" in finding.evidence
    assert finding.override == "grpo.learning_rate=2e-06"


def test_another_trainers_measurements_are_read_too():
    steps = [{**step} for step in healthy(1).steps]
    log = [{"step": step, "eval_reward": 0.9 if step < 60 else 0.5} for step in range(0, STEPS, 10)]
    names = [finding.name for finding in diagnose(History(steps, log), FACTS)]
    assert names == ["overfitting"]


def test_the_first_step_that_is_not_finite_is_named():
    broken = planted(0, 50, lambda step, since: {"grad_norm": None, "loss": None} if since in (0, 7) else {})
    finding = broken.found()["not-finite"]
    assert finding.since == 50
    assert finding.evidence == "loss and grad_norm of step 50 is NaN or infinite, and of 2 steps in all"
    scaled = planted(0, 50, lambda step, since: {"grad_norm": None} if not since else {})
    assert "not-finite" not in scaled.found(replace(FACTS, fp16=True))  # how loss scaling finds its scale


def test_a_run_that_a_value_ended_is_not_finite_too():
    ended = replace(FACTS, ended="NotFiniteError: step 121: not finite: weight lm_head.weight (nan in 3 of 4 values)")
    finding = healthy(0).found(ended)["not-finite"]
    assert finding.since == 121
    assert "lm_head.weight" in finding.evidence


def test_a_rate_that_was_never_set_and_a_schedule_that_ended_are_told_apart():
    never = with_metrics(learning_rate=0.0)["learning-rate-zero"]
    assert (never.since, never.override) == (1, "grpo.learning_rate=1e-5")
    ended = planted(0, 90, lambda step, since: {"learning_rate": 0.0}).found()["learning-rate-zero"]
    assert (ended.since, ended.override) == (90, "grpo.lr_scheduler_type=constant_with_warmup")


def test_an_adapter_in_warmup_or_without_a_gradient_has_not_failed():
    zero = {"kit/lora_b_max": 0.0}
    assert "lora-unmoved" in with_metrics(**zero)
    assert "lora-unmoved" not in with_metrics(**zero, learning_rate=0.0)
    assert "lora-unmoved" not in with_metrics(**zero, **{"kit/flat_group_share": 1.0})


def test_where_the_seconds_of_a_slow_step_go():
    finding = FAULTS["slow-step"][0](0, 60, 12).found()["slow-step"]
    assert finding.cause.startswith("most of it is update")
    assert "generation 6." in finding.evidence or "generation 5." in finding.evidence
    between = changed(0, 1, lambda step, since: {"kit/seconds/between": 60.0}).found()["slow-step"]
    assert between.override == "eval_every=10"  # measured every 5 steps
    assert "between steps" in between.evidence


def test_findings_of_several_rewards_are_several():
    both = {f"kit/rewards/{label}/unscored_share": 0.5 for label in ("accuracy", "format")}
    history = History([{**step, **(both if step["step"] > 60 else {})} for step in healthy(0).steps])
    assert {f.key for f in diagnose(history, FACTS)} == {("unscored", "accuracy"), ("unscored", "format")}


def test_without_any_facts_nothing_is_raised():
    for made, strengths, _ in FAULTS.values():
        for _, history in made(0, 60, strengths[3]).looked_at(115):
            diagnose(history, Facts(0, {}))


def small(group, flat, **more):
    """A run of one group a step: healthy, then as many flat groups in a row as are said."""
    steps = list(healthy(0).steps[:60])
    steps = [{**s, "kit/flat_group_share": float(s["step"] % 2 or s["step"] > 60 - flat)} for s in steps]
    return Made(tuple(steps), ()).found(replace(FACTS, completions=group, group=group, **more), at=60)


def test_flat_groups_in_a_row_are_chance_where_a_step_has_few():
    # half of all groups are flat, of the first 40 and of late: 20 in a row have a chance of 0.5^20 = 1e-6
    assert "no-gradient" not in small(8, flat=3)
    assert "no-gradient" not in small(8, flat=15)
    assert "no-gradient" in small(8, flat=25)
    assert steps_beyond_chance(0.5, 1) == 20
    assert steps_beyond_chance(0.5, 8) == 3
    unknown = History({"step": step, "frac_reward_zero_std": share} for step, share in enumerate((0.0, 0.25, 1.0), 1))
    assert groups_of(unknown, Facts(0, {})) == 4


def test_what_is_lost_in_a_small_batch_may_be_luck():
    right = [1.0] * 5 + [0.5] * 25 + [0.0, 0.5] * 5  # four completions a step that count as 4 / (1 + 3 * 0.4) = 1.8
    steps = [{**s, "kit/accuracy": a} for s, a in zip(healthy(0).steps, right, strict=False)]
    few, many = replace(FACTS, completions=4, group=4), replace(FACTS, completions=512, group=8)
    assert "accuracy-collapse" not in Made(tuple(steps), ()).found(few, at=40)
    assert "accuracy-collapse" in Made(tuple(steps), ()).found(many, at=40)


def test_a_slow_decline_is_a_collapse_too():
    slow = changed(0, 1, lambda step, since: stuck(step, 0.8 - 0.28 * min(step["step"] / 100, 1)))
    assert "little by little" in slow.found()["accuracy-collapse"].cause


def test_a_reward_that_rises_faster_than_a_goal_that_rises_is_not_farmed():
    def both(step, since):
        at = min(step["step"] / 50, 1)
        right, form = stuck(step, 0.4 + 0.12 * at)["kit/accuracy"], 0.1 + 0.9 * at
        goal = {"kit/accuracy": right, "rewards/accuracy/mean": right}
        return {**goal, "rewards/format/mean": form, "reward": right + form}

    facts = replace(FACTS, weights={"accuracy": 1.0, "format": 1.0})
    assert "farmed-reward" not in changed(0, 1, both).found(facts, at=60)


def test_a_penalty_that_falls_and_a_gated_reward_are_neither_farmed_nor_dominating():
    penalty = changed(0, 1, lambda step, since: {**stuck(step), "reward": 0.1 + 0.2 * ramp(since, 40),
                                                 "rewards/format/mean": 0.6 - 0.4 * ramp(since, 40)})  # fmt: skip
    facts = replace(FACTS, weights={"accuracy": 1.0, "format": -0.5})
    assert "farmed-reward" not in penalty.found(facts)
    gated = replace(FACTS, gates={"format": "accuracy"})
    assert "farmed-reward" in farming(1, 30, 0.7).found(at=60)
    assert "farmed-reward" not in farming(1, 30, 0.7).found(gated, at=60)
    leads = {"kit/rewards/format/variance_share": 0.95, "kit/accuracy": 0.3}
    assert "dominating-reward" in with_metrics(**leads)
    assert "dominating-reward" not in with_metrics(gated, **leads)


def test_a_graded_goal_rises_without_full_marks():
    def graded(step, since):
        at = min(step["step"] / 60, 1)
        own = {"kit/accuracy": 0.0, "rewards/accuracy/mean": 0.2 + 0.6 * at, "reward": 0.3 + 0.6 * at}
        return {**own, "completions/mean_length": 100 + 160 * at, "kit/entropy": 0.5 - 0.47 * at}

    assert not changed(0, 1, graded).found().keys() & {"length-growth", "entropy-collapse", "no-gradient"}


def test_a_gradient_that_begins_late_is_no_spike():
    def late(step, since):
        right = 0.0 if since < 0 else min(0.02 * step["step"], 0.6)
        return {"grad_norm": 0.002 if since < 0 else 0.4, "kit/accuracy": right, "rewards/accuracy/mean": right}

    assert not any(f.name == "gradient-spike" for _, h in changed(0, 15, late).looked_at() for f in diagnose(h, FACTS))


def test_nearly_no_groups_that_differ_and_no_gradient_at_all():
    none = {"kit/accuracy": 0.0, "rewards/accuracy/mean": 0.0}
    hopeless = with_metrics(**none, **{"kit/flat_group_share": 0.96, "kit/all_wrong": 0.96})["no-gradient"]
    assert hopeless.evidence == "96% of groups are flat, and nothing gets better"
    assert "the rows are too hard" in hopeless.cause
    dead = planted(0, 5, lambda s, since: {**none, "kit/flat_group_share": 0.9, "kit/all_wrong": 0.9}).found(at=59)
    assert "the policy has collapsed" in dead["no-gradient"].cause
    assert (dead["no-gradient"].since, dead["no-gradient"].override) == (5, "grpo.learning_rate=2e-06")
    moved = with_metrics(grad_norm=1e-7, **{"kit/flat_group_share": 0.3})["no-gradient"]
    assert moved.evidence == "the norm of the gradient is 1e-07, though 70% of groups are not flat"


def test_entropy_that_was_never_a_usual_one():
    hot = changed(0, 1, lambda step, since: {**stuck(step), "kit/entropy": 3.5}).found()["entropy-explosion"]
    assert hot.evidence == "entropy 3.50 nats a token from the first step on, and accuracy has not risen"
    assert hot.override == "grpo.temperature=0.7"


def test_completions_that_no_reward_judges_are_seen_without_a_share_of_each():
    steps = [{"step": step, "kit/unscored_share": 0.6} for step in range(1, 60)]
    [finding] = diagnose(History(steps), FACTS)
    assert (finding.name, finding.reward) == ("unscored", None)
    assert finding.evidence == "no reward judged 60% of completions"


def test_a_task_that_is_solved_is_not_told_to_sample_warmer():
    done = {"kit/flat_group_share": 1.0, "kit/all_right": 1.0, "kit/accuracy": 1.0, "kit/identical_group_share": 0.95}
    run = planted(0, 60, lambda step, since: done)
    for temperature in (0.9, 1.0):
        solved = run.found(replace(FACTS, temperature=temperature))["no-gradient"]
        assert solved.cause.endswith("were at first: the task is solved")
        assert (solved.change, solved.override) == ("stop here, or take harder rows", None)
