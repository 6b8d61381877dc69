"""One small pure step each: SGLD and its kin on minibatches, HMC on all data."""

from .base import Draw as Draw
from .base import Kernel as Kernel
from .base import Random as Random
from .hmc import HMC as HMC
from .leimkuhler_matthews import LeimkuhlerMatthews as LeimkuhlerMatthews
from .rmsprop_sgld import RMSPropSGLD as RMSPropSGLD
from .sgld import SGLD as SGLD
from .sgnht import SGNHT as SGNHT
