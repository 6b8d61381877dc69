"""Population training: hundreds of networks of one architecture as one batched program."""

from .entropy import EntropySGD as EntropySGD
from .members import Member as Member
from .online import OnlineNGD as OnlineNGD
from .run import Evaluation as Evaluation
from .run import Population as Population
from .updates import SGD as SGD
from .updates import Adam as Adam

__all__ = ["SGD", "Adam", "EntropySGD", "Evaluation", "Member", "OnlineNGD", "Population"]
