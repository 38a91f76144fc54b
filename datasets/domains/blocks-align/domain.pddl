; Robotic Blocksworld with orientation: blocks face a direction, are turned in the hand and stand side by side.
(define (domain blocks-align)
  (:requirements :strips)
  (:predicates
    (obj ?b)
    (table ?t)
    (robot ?r)
    (quarter-turn ?from ?to)
    (on-table ?b ?t)
    (above ?b1 ?b2)
    (top ?b)
    (facing ?b ?d)
    (aligned ?b1 ?b2)
    (nothing_beside ?b)
    (holding ?b ?r)
    (hand_free ?r))
  (:action pick-up
    :parameters (?b ?t ?r)
    :precondition (and (obj ?b) (table ?t) (robot ?r) (on-table ?b ?t) (top ?b) (nothing_beside ?b) (hand_free ?r))
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
    :effect (and (holding ?b1 ?r) (top ?b2) (not (above ?b1 ?b2)) (not (top ?b1)) (not (hand_free ?r))))
  (:action rotate
    :parameters (?b ?from ?to ?r)
    :precondition (and (obj ?b) (robot ?r) (holding ?b ?r) (facing ?b ?from) (quarter-turn ?from ?to))
    :effect (and (facing ?b ?to) (not (facing ?b ?from))))
  (:action align
    :parameters (?b1 ?b2 ?d ?t ?r)
    :precondition (and (obj ?b1) (obj ?b2) (table ?t) (robot ?r) (holding ?b1 ?r) (on-table ?b2 ?t)
      (nothing_beside ?b2) (facing ?b1 ?d) (facing ?b2 ?d))
    :effect (and (on-table ?b1 ?t) (top ?b1) (aligned ?b1 ?b2) (aligned ?b2 ?b1) (hand_free ?r)
      (not (nothing_beside ?b1)) (not (nothing_beside ?b2)) (not (holding ?b1 ?r))))
  (:action part
    :parameters (?b1 ?b2 ?t ?r)
    :precondition (and (obj ?b1) (obj ?b2) (table ?t) (robot ?r) (aligned ?b1 ?b2) (on-table ?b1 ?t) (top ?b1)
      (hand_free ?r))
    :effect (and (holding ?b1 ?r) (nothing_beside ?b1) (nothing_beside ?b2) (not (aligned ?b1 ?b2))
      (not (aligned ?b2 ?b1)) (not (on-table ?b1 ?t)) (not (top ?b1)) (not (hand_free ?r)))))
