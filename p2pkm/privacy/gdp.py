"""Gaussian differential privacy under its public name; its code is a building block, since methods need it too."""

from p2pkm.methods.building_blocks.gdp import compose as compose
from p2pkm.methods.building_blocks.gdp import delta_of as delta_of
from p2pkm.methods.building_blocks.gdp import epsilon_of as epsilon_of
from p2pkm.methods.building_blocks.gdp import mu_of as mu_of
