; Transport: vehicles of limited capacity carry packages over a road network.
(define (domain transport)
  (:requirements :strips :typing)
  (:types size location locatable - object vehicle package - locatable)
  (:predicates
    (road ?l1 ?l2 - location)
    (at ?x - locatable ?v - location)
    (in ?x - package ?v - vehicle)
    (capacity ?v - vehicle ?s1 - size)
    (capacity-predecessor ?s1 ?s2 - size))
  (:action drive
    :parameters (?v - vehicle ?l1 ?l2 - location)
    :precondition (and (at ?v ?l1) (road ?l1 ?l2))
    :effect (and (at ?v ?l2) (not (at ?v ?l1))))
  (:action pick-up
    :parameters (?v - vehicle ?l - location ?p - package ?s1 ?s2 - size)
    :precondition (and (at ?v ?l) (at ?p ?l) (capacity ?v ?s2) (capacity-predecessor ?s1 ?s2))
    :effect (and (in ?p ?v) (capacity ?v ?s1) (not (at ?p ?l)) (not (capacity ?v ?s2))))
  (:action drop
    :parameters (?v - vehicle ?l - location ?p - package ?s1 ?s2 - size)
    :precondition (and (at ?v ?l) (in ?p ?v) (capacity ?v ?s1) (capacity-predecessor ?s1 ?s2))
    :effect (and (at ?p ?l) (capacity ?v ?s2) (not (in ?p ?v)) (not (capacity ?v ?s1)))))
