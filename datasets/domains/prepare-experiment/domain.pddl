; Prepare experiment: laboratory equipment is taken out of containers and set up on furniture.
(define (domain prepare-experiment)
  (:requirements :strips :typing)
  (:types robot furniture equipment - object container - equipment)
  (:predicates
    (on-table ?e - equipment ?f - furniture)
    (above ?e1 ?e2 - equipment)
    (top ?e - equipment)
    (inside ?e - equipment ?c - container)
    (opened ?c - container)
    (closed ?c - container)
    (holding ?e - equipment ?r - robot)
    (hand_free ?r - robot))
  (:action pick-up
    :parameters (?e - equipment ?f - furniture ?r - robot)
    :precondition (and (on-table ?e ?f) (top ?e) (hand_free ?r))
    :effect (and (holding ?e ?r) (not (on-table ?e ?f)) (not (top ?e)) (not (hand_free ?r))))
  (:action put-down
    :parameters (?e - equipment ?f - furniture ?r - robot)
    :precondition (holding ?e ?r)
    :effect (and (on-table ?e ?f) (top ?e) (hand_free ?r) (not (holding ?e ?r))))
  (:action stack
    :parameters (?e1 ?e2 - equipment ?r - robot)
    :precondition (and (holding ?e1 ?r) (top ?e2))
    :effect (and (above ?e1 ?e2) (top ?e1) (hand_free ?r) (not (holding ?e1 ?r)) (not (top ?e2))))
  (:action unstack
    :parameters (?e1 ?e2 - equipment ?r - robot)
    :precondition (and (above ?e1 ?e2) (top ?e1) (hand_free ?r))
    :effect (and (holding ?e1 ?r) (top ?e2) (not (above ?e1 ?e2)) (not (top ?e1)) (not (hand_free ?r))))
  (:action open
    :parameters (?c - container ?r - robot)
    :precondition (and (closed ?c) (top ?c) (hand_free ?r))
    :effect (and (opened ?c) (not (closed ?c)) (not (top ?c))))
  (:action close
    :parameters (?c - container ?r - robot)
    :precondition (and (opened ?c) (hand_free ?r))
    :effect (and (closed ?c) (top ?c) (not (opened ?c))))
  (:action take-out
    :parameters (?e - equipment ?c - container ?r - robot)
    :precondition (and (inside ?e ?c) (opened ?c) (hand_free ?r))
    :effect (and (holding ?e ?r) (not (inside ?e ?c)) (not (hand_free ?r)))))
