; Machine parts assembly: robots fetch parts and tools and put machines together part by part.
(define (domain machine-parts-assembly)
  (:requirements :strips :typing)
  (:types robot furniture thing - object part tool - thing)
  (:predicates
    (base ?p - part)
    (fits ?p1 ?p2 - part)
    (at ?r - robot ?f - furniture)
    (on-table ?x - thing ?f - furniture)
    (vacant ?f - furniture)
    (fixed ?p - part ?f - furniture)
    (attached ?p1 ?p2 - part)
    (loose ?p - part)
    (bare ?p - part)
    (holding ?x - thing ?r - robot)
    (hand_free ?r - robot))
  (:action go
    :parameters (?r - robot ?from ?to - furniture)
    :precondition (at ?r ?from)
    :effect (and (at ?r ?to) (not (at ?r ?from))))
  (:action pick-up
    :parameters (?x - thing ?f - furniture ?r - robot)
    :precondition (and (at ?r ?f) (on-table ?x ?f) (hand_free ?r))
    :effect (and (holding ?x ?r) (not (on-table ?x ?f)) (not (hand_free ?r))))
  (:action put-down
    :parameters (?x - thing ?f - furniture ?r - robot)
    :precondition (and (at ?r ?f) (holding ?x ?r))
    :effect (and (on-table ?x ?f) (hand_free ?r) (not (holding ?x ?r))))
  (:action clamp
    :parameters (?p - part ?f - furniture ?r - robot)
    :precondition (and (base ?p) (at ?r ?f) (holding ?p ?r) (vacant ?f))
    :effect (and (fixed ?p ?f) (hand_free ?r) (not (holding ?p ?r)) (not (vacant ?f))))
  (:action attach
    :parameters (?p1 ?p2 - part ?f - furniture ?r - robot)
    :precondition (and (fits ?p1 ?p2) (at ?r ?f) (holding ?p1 ?r) (fixed ?p2 ?f) (bare ?p2))
    :effect (and (attached ?p1 ?p2) (loose ?p1) (hand_free ?r) (not (holding ?p1 ?r)) (not (bare ?p2))))
  (:action detach
    :parameters (?p1 ?p2 - part ?f - furniture ?r - robot)
    :precondition (and (attached ?p1 ?p2) (loose ?p1) (at ?r ?f) (fixed ?p2 ?f) (hand_free ?r))
    :effect (and (holding ?p1 ?r) (bare ?p2) (not (attached ?p1 ?p2)) (not (loose ?p1)) (not (hand_free ?r))))
  (:action fasten
    :parameters (?p1 ?p2 - part ?x - tool ?f - furniture ?r - robot)
    :precondition (and (attached ?p1 ?p2) (loose ?p1) (fixed ?p2 ?f) (at ?r ?f) (holding ?x ?r))
    :effect (and (fixed ?p1 ?f) (not (loose ?p1)))))
