"""Population training: hundreds of networks of one architecture as one batched program."""

from .entropy import EntropySGD
from .members import Member
from .online import OnlineNGD
from .run import Evaluation, Population
from .updates import SGD, Adam

__all__ = ["SGD", "Adam", "EntropySGD", "Evaluation", "Member", "OnlineNGD", "Population"]
