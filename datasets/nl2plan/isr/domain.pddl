; Independent-set reconfiguration: tokens jump between vertices of a graph and never lie on two neighbours.
(define (domain isr)
  (:requirements :strips :typing :negative-preconditions :disjunctive-preconditions :universal-preconditions :equality)
  (:types vertex)
  (:predicates
    (edge ?v ?w - vertex)
    (token ?v - vertex))
  (:action jump
    :parameters (?from ?to - vertex)
    :precondition (and (token ?from) (not (token ?to))
      (forall (?other - vertex) (or (not (edge ?to ?other)) (not (token ?other)) (= ?other ?from))))
    :effect (and (token ?to) (not (token ?from)))))
