"""Reading what one machine is: sources say facts, facts merge, merged facts become a topology.

sources/ -> facts -> merge -> infer -> build -> synth.topology
"""
