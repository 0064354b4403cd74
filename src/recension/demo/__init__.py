"""The main job as a demonstration: replicas of one query disagree, die and come back; one answer comes out.

leases       what really happened in a day, and three servers that report it
plans        the question, and two plans that answer it
script       which replicas start, die and leave, hour by hour
local_stage, spark_stage   where it is played
trace        what every stream put out, and when
verdict      is the answer right, and what did it take
late_lease   an answer that was wrong at noon, and why
performance  all of it, shown while it runs
drawing, figures, page     the report: one page that needs nothing but itself
"""
