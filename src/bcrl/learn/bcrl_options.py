"""The options of BCRL in groups, each with its range and unit, and what follows from them.

The defaults are the paper's for Bullet tasks, with the repairs of docs/method.md.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
from jaxtyping import Array

from bcrl import budget as budgets
from bcrl.errors import BCRLError
from bcrl.learn.losses import Regression, SparseWeight
from bcrl.learn.options import MethodOptions, option
from bcrl.learn.protocol import Part, Spec
from bcrl.learn.regression import InSample

PARTS: tuple[Part, ...] = ("cost", "reward", "policy")
LEAST_LEFT = 0.01
"""The least γ_C^n of stretches of n steps: budgets are divided by it."""


@dataclass(frozen=True, repr=False)
class BCRLOptions(MethodOptions):
    """Options of BCRL."""

    networks_of: ClassVar[dict[Part, tuple[str, ...]]] = {
        "cost": ("cost_value", "cost_critic"),
        "reward": ("value", "critic"),
        "policy": ("actor", "fallback"),
    }
    """The trained networks of each part."""
    acting: ClassVar[tuple[str, ...]] = (
        "safety_factor",
        "fallback_below",
        "fallback_draws",
        "fallback_beta",
        "fallback_ramp",
        "fallback_mixtures",
        "check_action",
        "support",
    )

    # ---- the safe set: least-cost critics V_C and Q_C ----------------------------------------------

    tracking: budgets.Tracking = "soft"
    """How budgets change in training: soft (the paper's g, stochastic worlds) or direct (deterministic)."""
    criterion: budgets.Criterion = "discounted"
    """What a budget bounds: discounted cost, or the undiscounted cost of the episode (time is an input)."""
    time_limits: Literal["go-on", "end"] = "go-on"
    """Timeouts: bootstrap (go-on, the paper's) or end the backup. The episodic criterion always ends it."""
    tau_c: float = option(0.2, above=0.0, most=0.5, traced=True)
    """Expectile τ_C of the cost value; smaller is nearer the least cost, 0.5 is the behaviour policy's."""
    cost_regression: Regression = "expectile"
    """How V_C is regressed on Q_C: expectile (IQL), gumbel (XQL) or sparse (SparseQL)."""
    temperature_c: float | None = option(None, above=0.0, unit="see temperature_unit", traced=True)
    """Gumbel's β or sparse's α for V_C; smaller is nearer the least cost. By default 1 and 0.5."""
    gamma_cost: float = option(0.99, above=0.0, most=1.0)
    """Discount γ_C of cost. The episodic criterion does not use it (1 there)."""
    nonnegative_values: bool = True
    """Use max(V_C, 0) in backups and slacks; False is the published code's behaviour."""
    cost_weights: tuple[float, ...] | None = option(None, above=0.0)
    """With several costs: weights ω of cost_i/c_max,i in the base policy's objective (default: 1 each)."""
    cost_share: float = option(1.0, above=0.0, most=1.0)
    """Share of the steps, the first ones, that train the cost critics; then they stay as they are."""
    fallback_critic: bool = False
    """Also learn Q_F, what the fallback's own actions cost. In acting it takes the place of Q_C: it decides
    whether an action is safe, and weighs the fallback's samples. Its step size falls as the policies' does.
    Not the paper's; for continuous actions."""

    # ---- reward critics ----------------------------------------------------------------------------

    tau_r: float = option(0.5, least=0.5, most=1.0, traced=True)
    """Expectile τ_R of the reward value; larger is nearer the best action of the log."""
    reward_regression: Regression = "expectile"
    """How V_R is regressed on Q_R: expectile (IQL), gumbel (XQL) or sparse (SparseQL)."""
    temperature_r: float | None = option(None, above=0.0, unit="see temperature_unit", traced=True)
    """Gumbel's β or sparse's α for V_R; smaller is nearer the best action. By default 1 and 0.5."""
    gamma: float = option(0.99, least=0.0, most=1.0)
    """Discount of reward."""
    n_step: int = option(1, least=1, most=1_000)
    """Steps of the log in one backup, of reward and cost; 1 is the paper's. Long episodes may need more, with
    a smaller tau_c."""

    cost_price: tuple[float, ...] | None = option(None, above=0.0, unit="reward/cost")
    """Reward that a cost takes away in training, one for all costs or for each: of two ways to the same
    reward the cheaper is better, also where no budget binds. None is the paper's."""

    label_values: Literal["compared", "regressed"] = "compared"
    """Discrete actions: V_C and V_R by comparing those that the log supports, or by the regressions."""

    # ---- policy extraction -------------------------------------------------------------------------

    extraction: Literal["clone", "gradient"] = "clone"
    """The policy clones by advantage (the paper's), or also climbs Q_R inside the safe set (gradient)."""
    greed: float = option(10.0, above=0.0, traced=True)
    """Gradient: weight of Q_R against cloning, with Q_R in units of its mean size."""
    unsafe_price: float = option(1.0, least=0.0, traced=True)
    """Gradient: price of Q_C above δ in the policy's loss, with Q_C in spreads of Q_C − V_C in the log."""
    beta: float = option(
        3.0, above=0.0, unit="1/reward_unit for the policy, 1/c_max for the fallback", traced=True
    )
    """Inverse temperature β of policy extraction: actions are weighted by exp(β · advantage)."""
    weight_limit: float = option(100.0, above=0.0, traced=True)
    """Largest weight of an action in policy extraction."""
    sparse_extraction: SparseWeight = "above"
    """Sparse: weights max(A, 0)/2α, the code's (above), or max(1 + A/2α, 0), the theory's (support)."""

    # ---- networks and optimisation -----------------------------------------------------------------

    hidden: tuple[int, ...] = option((512, 512), least=1, most=65_536)
    """Hidden layers of every network."""
    critic_norm: bool = False
    """LayerNorm in Q_R, so that it does not grow at actions far from the log's; bcrl-gradient has it."""
    batch_size: int = option(512, least=1, most=10_000_000)
    """Transitions per gradient step."""
    learning_rate: float = option(3e-4, above=0.0, traced=True)
    """Adam's step size; it decays as `decay` says."""
    decay: Literal["policies", "all"] = "policies"
    """Whose step size decays to 0 along a cosine: the policies' (IQL's), or also the critics'."""
    target_rate: float = option(0.005, least=0.0, most=1.0, traced=True)
    """Rate α at which target critics follow at each step."""
    clip_norm: float = option(10.0, above=0.0, traced=True)
    """Largest gradient norm of each critic."""
    dropout: float = option(0.1, least=0.0, below=1.0)
    """Dropout of the policies after their last hidden layer."""
    phases: Literal["together", "in-turn"] = "together"
    """Train cost critics, reward critics and policy in one loop, or one after another, each for all steps."""

    # ---- budgets in training -----------------------------------------------------------------------

    budget_samples: int = option(1, least=1, most=10_000)
    """Budgets n sampled for each transition of a batch."""
    max_budget: tuple[float, ...] | None = option(None, above=0.0, unit="cost")
    """Largest slack to train for, one for all costs or for each. By default c_max/(1 − γ_C), or c_max times
    the horizon if episodic."""

    # ---- acting ------------------------------------------------------------------------------------

    safety_factor: float = option(1.3, least=1.0, most=1e6, traced=True)
    """V_C and Q_C are multiplied by this before they are compared with δ: where the log is thin they are too
    low. 1 is the paper's. Labels are not scaled."""
    fallback_below: float = option(0.1, least=0.0, unit="c_max", traced=True)
    """Slack below which the least-cost fallback acts."""
    fallback_draws: int = option(8, least=0, most=10_000)
    """Fallback samples per step; their exp(−β·Q_C)-weighted mean is executed. 0: the mean action."""
    fallback_beta: float = option(5.0, least=0.0, unit="1/c_max", traced=True)
    """Inverse temperature β of those weights."""
    fallback_ramp: float = option(0.0, least=0.0, traced=True)
    """β is multiplied by min(1, safety_factor · mean Q / (ramp · δ)), with the samples' Q_C (Q_F where it is
    learned): the fallback deviates little where little budget is missing. 0: β stays whole."""
    fallback_mixtures: int = option(0, least=0, most=10_000)
    """Mixtures of the policy's action and the fallback's that are tried, the last one the fallback's own: the
    first with safety_factor · Q_C (Q_F where it is learned) ≤ δ is executed. 0: the fallback's own."""
    check_action: bool = True
    """The fallback also acts where Q_C of the policy's action exceeds δ; the paper does not check.
    Labels and policies that follow a gradient are always checked."""
    support: float = option(0.01, least=0.0, most=1.0, traced=True)
    """Discrete actions: least probability by policy or fallback, as a share of the most likely action's."""

    # ---- the paper's own forms ---------------------------------------------------------------------

    slack_draw: Literal["log-uniform", "uniform"] = "log-uniform"
    """Distribution of the slack sampled in training; uniform is the paper's."""
    budget_input: Literal["log", "raw"] = "log"
    """The input of the networks for a budget x: log(1 + x), or x itself as in the paper."""
    temperature_unit: Literal["spread", "raw"] = "spread"
    """Unit of temperatures: the root mean square of Q − V, or cost and reward as in the paper (raw)."""
    exponent_limit: float | None = option(5.0, above=0.0, traced=True)
    """Gumbel: (Q − V)/β beyond which a sample's gradient stops growing; None is the paper's."""

    def __post_init__(self) -> None:
        for name in ("max_budget", "cost_price"):
            if isinstance(value := getattr(self, name), int | float):
                object.__setattr__(self, name, (value,))
        super().__post_init__()
        if self.criterion == "discounted" and self.gamma_cost == 1.0:
            raise BCRLError("gamma_cost is 1, but discounted budgets need less: use criterion 'episodic'")
        if self.n_step > 1 and self.discount_cost**self.n_step < LEAST_LEFT:
            raise BCRLError(
                f"n_step is {self.n_step}, but of a cost so far ahead less than {LEAST_LEFT:.0%} counts with "
                f"gamma_cost {self.gamma_cost:g}: use a smaller n_step"
            )

    @property
    def schedule(self) -> tuple[tuple[Part, ...], ...]:
        """All parts together, or one after another; a policy that climbs is trained with what it climbs."""
        if self.phases == "together":
            return (PARTS,)
        return (("cost",), ("reward", "policy")) if self.climbs else tuple((part,) for part in PARTS)

    @property
    def instance(self) -> str:
        """A policy that climbs needs actions with a gradient."""
        return "bcrl-gradient" if self.extraction == "gradient" and self.name == "bcrl" else self.name

    @property
    def climbs(self) -> bool:
        """Whether the policy follows the gradient of Q_R, and so may take actions that are not in the log."""
        return self.extraction == "gradient"

    @property
    def budget_form(self) -> tuple[str, str]:
        """Tracking and criterion."""
        return self.tracking, self.criterion

    @property
    def discount_cost(self) -> float:
        """γ_C in force: 1 with the episodic criterion."""
        return 1.0 if self.criterion == "episodic" else self.gamma_cost

    @property
    def cost_rule(self) -> InSample:
        """How V_C is regressed on Q_C, and the fallback's weights."""
        return self._rule("cost", self.cost_regression, self.tau_c, self.temperature_c)

    @property
    def reward_rule(self) -> InSample:
        """How V_R is regressed on Q_R, and the policy's weights."""
        return self._rule("reward", self.reward_regression, self.tau_r, self.temperature_r)

    def _rule(self, of: Any, regression: Regression, tau: float, temperature: float | None) -> InSample:
        return InSample(
            of,
            regression,
            tau,
            temperature,
            self.temperature_unit,
            self.exponent_limit,
            self.beta,
            self.weight_limit,
            self.sparse_extraction,
        )

    @property
    def ends_at_timeouts(self) -> bool:
        """Whether a timeout ends the backup. Otherwise it is not terminal: values bootstrap there."""
        return self.time_limits == "end" or self.criterion == "episodic"

    def slack_limit(self, spec: Spec) -> Array:
        """The largest slack of training and acting, for each cost."""
        if self.max_budget is not None:
            return jnp.broadcast_to(jnp.array(self.max_budget), (spec.cost_count,))
        return budgets.slack_limit(jnp.asarray(spec.max_cost), self.discount_cost, spec.horizon)
