; Independent-set reconfiguration with a jump in two actions: a token is taken off, then it is put down.
(define (domain isr-assisted)
  (:requirements :strips :typing :negative-preconditions :disjunctive-preconditions :universal-preconditions)
  (:types vertex)
  (:predicates
    (edge ?v ?w - vertex)
    (token ?v - vertex)
    (removed))
  (:action remove
    :parameters (?v - vertex)
    :precondition (and (token ?v) (not (removed)))
    :effect (and (removed) (not (token ?v))))
  (:action add
    :parameters (?v - vertex)
    :precondition (and (removed) (not (token ?v))
      (forall (?other - vertex) (or (not (edge ?v ?other)) (not (token ?other)))))
    :effect (and (token ?v) (not (removed)))))
