"""The main job, as a story: replicas of one query that disagree, die and come back, and one clean answer.

leases    what really happened in a day                feeds    three servers that tell of it, each its way
plans     the question, and two plans that answer it   script   who comes, dies and goes, hour by hour
stage     where it is played                           trace    who said what, and when
verdict   is the answer right, and what did it take    report/  the page with the figures
"""
