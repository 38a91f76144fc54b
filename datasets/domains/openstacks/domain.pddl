; Openstacks: orders hold stacks while their products are made one after another; fewer stacks are cheaper.
(define (domain openstacks)
  (:requirements :strips :typing :disjunctive-preconditions :universal-preconditions :action-costs)
  (:types order product count)
  (:predicates
    (includes ?o - order ?p - product)
    (waiting ?o - order)
    (started ?o - order)
    (shipped ?o - order)
    (made ?p - product)
    (not-made ?p - product)
    (stacks-avail ?s - count)
    (next-count ?s ?ns - count))
  (:functions (total-cost) - number)
  (:action open-new-stack
    :parameters (?open ?new-open - count)
    :precondition (and (stacks-avail ?open) (next-count ?open ?new-open))
    :effect (and (not (stacks-avail ?open)) (stacks-avail ?new-open) (increase (total-cost) 1)))
  (:action start-order
    :parameters (?o - order ?avail ?new-avail - count)
    :precondition (and (waiting ?o) (stacks-avail ?avail) (next-count ?new-avail ?avail))
    :effect (and (not (waiting ?o)) (started ?o) (not (stacks-avail ?avail)) (stacks-avail ?new-avail)))
  (:action make-product
    :parameters (?p - product)
    :precondition (and (not-made ?p) (forall (?o - order) (imply (includes ?o ?p) (started ?o))))
    :effect (and (not (not-made ?p)) (made ?p)))
  (:action ship-order
    :parameters (?o - order ?avail ?new-avail - count)
    :precondition (and (started ?o) (forall (?p - product) (imply (includes ?o ?p) (made ?p)))
                       (stacks-avail ?avail) (next-count ?avail ?new-avail))
    :effect (and (not (started ?o)) (shipped ?o) (not (stacks-avail ?avail)) (stacks-avail ?new-avail))))
