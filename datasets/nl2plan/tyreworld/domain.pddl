; Tyreworld: change wheels with a wrench, a jack and a pump. The tools are objects here.
(define (domain tyreworld)
  (:requirements :strips :typing)
  (:types obj container hub - object tool wheel nut - obj wrench jack pump - tool)
  (:predicates
    (open ?x - container)
    (closed ?x - container)
    (unlocked ?x - container)
    (have ?x - obj)
    (in ?x - obj ?y - container)
    (loose ?x - nut ?y - hub)
    (tight ?x - nut ?y - hub)
    (on-ground ?x - hub)
    (not-on-ground ?x - hub)
    (fastened ?x - hub)
    (unfastened ?x - hub)
    (free ?x - hub)
    (under ?x - jack ?y - hub)
    (on ?x - wheel ?y - hub)
    (inflated ?x - wheel)
    (not-inflated ?x - wheel)
    (intact ?x - wheel))
  (:action open
    :parameters (?x - container)
    :precondition (and (unlocked ?x) (closed ?x))
    :effect (and (open ?x) (not (closed ?x))))
  (:action close
    :parameters (?x - container)
    :precondition (open ?x)
    :effect (and (closed ?x) (not (open ?x))))
  (:action fetch
    :parameters (?x - obj ?y - container)
    :precondition (and (open ?y) (in ?x ?y))
    :effect (and (have ?x) (not (in ?x ?y))))
  (:action put-away
    :parameters (?x - obj ?y - container)
    :precondition (and (open ?y) (have ?x))
    :effect (and (in ?x ?y) (not (have ?x))))
  (:action loosen
    :parameters (?x - nut ?y - hub ?wrench - wrench)
    :precondition (and (have ?wrench) (on-ground ?y) (tight ?x ?y))
    :effect (and (loose ?x ?y) (not (tight ?x ?y))))
  (:action tighten
    :parameters (?x - nut ?y - hub ?wrench - wrench)
    :precondition (and (have ?wrench) (on-ground ?y) (loose ?x ?y))
    :effect (and (tight ?x ?y) (not (loose ?x ?y))))
  (:action jack-up
    :parameters (?y - hub ?jack - jack)
    :precondition (and (have ?jack) (on-ground ?y))
    :effect (and (not-on-ground ?y) (under ?jack ?y) (not (on-ground ?y)) (not (have ?jack))))
  (:action jack-down
    :parameters (?y - hub ?jack - jack)
    :precondition (and (not-on-ground ?y) (under ?jack ?y))
    :effect (and (on-ground ?y) (have ?jack) (not (not-on-ground ?y)) (not (under ?jack ?y))))
  (:action undo
    :parameters (?x - nut ?y - hub ?wrench - wrench)
    :precondition (and (have ?wrench) (not-on-ground ?y) (fastened ?y) (loose ?x ?y))
    :effect (and (have ?x) (unfastened ?y) (not (fastened ?y)) (not (loose ?x ?y))))
  (:action do-up
    :parameters (?x - nut ?y - hub ?wrench - wrench)
    :precondition (and (have ?wrench) (have ?x) (not-on-ground ?y) (unfastened ?y))
    :effect (and (loose ?x ?y) (fastened ?y) (not (unfastened ?y)) (not (have ?x))))
  (:action remove-wheel
    :parameters (?x - wheel ?y - hub)
    :precondition (and (not-on-ground ?y) (unfastened ?y) (on ?x ?y))
    :effect (and (have ?x) (free ?y) (not (on ?x ?y))))
  (:action put-on-wheel
    :parameters (?x - wheel ?y - hub)
    :precondition (and (have ?x) (not-on-ground ?y) (unfastened ?y) (free ?y))
    :effect (and (on ?x ?y) (not (free ?y)) (not (have ?x))))
  (:action inflate
    :parameters (?x - wheel ?pump - pump)
    :precondition (and (have ?pump) (intact ?x) (not-inflated ?x))
    :effect (and (inflated ?x) (not (not-inflated ?x)))))
