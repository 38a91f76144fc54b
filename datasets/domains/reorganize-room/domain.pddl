; Reorganize room: robots carry household items between furniture and pack them into containers.
(define (domain reorganize-room)
  (:requirements :strips :typing :negative-preconditions)
  (:types robot furniture thing - object item container - thing)
  (:predicates
    (at ?r - robot ?f - furniture)
    (on-table ?x - thing ?f - furniture)
    (inside ?i - item ?c - container)
    (opened ?x - thing)
    (holding ?x - thing ?r - robot)
    (hand_free ?r - robot))
  (:action go
    :parameters (?r - robot ?from ?to - furniture)
    :precondition (at ?r ?from)
    :effect (and (at ?r ?to) (not (at ?r ?from))))
  (:action pick-up
    :parameters (?x - thing ?f - furniture ?r - robot)
    :precondition (and (at ?r ?f) (on-table ?x ?f) (hand_free ?r) (not (opened ?x)))
    :effect (and (holding ?x ?r) (not (on-table ?x ?f)) (not (hand_free ?r))))
  (:action put-down
    :parameters (?x - thing ?f - furniture ?r - robot)
    :precondition (and (at ?r ?f) (holding ?x ?r))
    :effect (and (on-table ?x ?f) (hand_free ?r) (not (holding ?x ?r))))
  (:action open
    :parameters (?c - container ?f - furniture ?r - robot)
    :precondition (and (at ?r ?f) (on-table ?c ?f) (hand_free ?r) (not (opened ?c)))
    :effect (opened ?c))
  (:action close
    :parameters (?c - container ?f - furniture ?r - robot)
    :precondition (and (at ?r ?f) (on-table ?c ?f) (hand_free ?r) (opened ?c))
    :effect (not (opened ?c)))
  (:action pack
    :parameters (?i - item ?c - container ?f - furniture ?r - robot)
    :precondition (and (at ?r ?f) (holding ?i ?r) (on-table ?c ?f) (opened ?c))
    :effect (and (inside ?i ?c) (hand_free ?r) (not (holding ?i ?r))))
  (:action unpack
    :parameters (?i - item ?c - container ?f - furniture ?r - robot)
    :precondition (and (at ?r ?f) (inside ?i ?c) (on-table ?c ?f) (opened ?c) (hand_free ?r))
    :effect (and (holding ?i ?r) (not (inside ?i ?c)) (not (hand_free ?r)))))
