; Robotic Blocksworld: robots with one hand each stack blocks on tables.
(define (domain blocks-classic)
  (:requirements :strips)
  (:predicates
    (obj ?b)
    (table ?t)
    (robot ?r)
    (on-table ?b ?t)
    (above ?b1 ?b2)
    (top ?b)
    (holding ?b ?r)
    (hand_free ?r))
  (:action pick-up
    :parameters (?b ?t ?r)
    :precondition (and (obj ?b) (table ?t) (robot ?r) (on-table ?b ?t) (top ?b) (hand_free ?r))
    :effect (and (holding ?b ?r) (not (on-table ?b ?t)) (not (top ?b)) (not (hand_free ?r))))
  (:action put-down
    :parameters (?b ?t ?r)
    :precondition (and (obj ?b) (table ?t) (robot ?r) (holding ?b ?r))
    :effect (and (on-table ?b ?t) (top ?b) (hand_free ?r) (not (holding ?b ?r))))
  (:action stack
    :parameters (?b1 ?b2 ?r)
    :precondition (and (obj ?b1) (obj ?b2) (robot ?r) (holding ?b1 ?r) (top ?b2))
    :effect (and (above ?b1 ?b2) (top ?b1) (hand_free ?r) (not (holding ?b1 ?r)) (not (top ?b2))))
  (:action unstack
    :parameters (?b1 ?b2 ?r)
    :precondition (and (obj ?b1) (obj ?b2) (robot ?r) (above ?b1 ?b2) (top ?b1) (hand_free ?r))
    :effect (and (holding ?b1 ?r) (top ?b2) (not (above ?b1 ?b2)) (not (top ?b1)) (not (hand_free ?r)))))
