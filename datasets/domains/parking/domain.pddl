; Parking: cars stand at curbs, at most two to a curb, one behind the other, and are rearranged one by one.
(define (domain parking)
  (:requirements :strips :typing :action-costs)
  (:types car curb)
  (:predicates
    (at-curb ?car - car)
    (at-curb-num ?car - car ?curb - curb)
    (behind-car ?car ?front-car - car)
    (car-clear ?car - car)
    (curb-clear ?curb - curb))
  (:functions (total-cost) - number)
  (:action move-curb-to-curb
    :parameters (?car - car ?curbsrc ?curbdest - curb)
    :precondition (and (car-clear ?car) (at-curb-num ?car ?curbsrc) (curb-clear ?curbdest))
    :effect (and (at-curb-num ?car ?curbdest) (curb-clear ?curbsrc)
      (not (at-curb-num ?car ?curbsrc)) (not (curb-clear ?curbdest)) (increase (total-cost) 1)))
  (:action move-curb-to-car
    :parameters (?car - car ?curbsrc - curb ?cardest - car)
    :precondition (and (car-clear ?car) (at-curb-num ?car ?curbsrc) (at-curb ?cardest) (car-clear ?cardest))
    :effect (and (behind-car ?car ?cardest) (curb-clear ?curbsrc)
      (not (at-curb ?car)) (not (at-curb-num ?car ?curbsrc)) (not (car-clear ?cardest)) (increase (total-cost) 1)))
  (:action move-car-to-curb
    :parameters (?car ?carsrc - car ?curbdest - curb)
    :precondition (and (car-clear ?car) (behind-car ?car ?carsrc) (curb-clear ?curbdest))
    :effect (and (at-curb ?car) (at-curb-num ?car ?curbdest) (car-clear ?carsrc)
      (not (behind-car ?car ?carsrc)) (not (curb-clear ?curbdest)) (increase (total-cost) 1)))
  (:action move-car-to-car
    :parameters (?car ?carsrc ?cardest - car)
    :precondition (and (car-clear ?car) (behind-car ?car ?carsrc) (at-curb ?cardest) (car-clear ?cardest))
    :effect (and (behind-car ?car ?cardest) (car-clear ?carsrc)
      (not (behind-car ?car ?carsrc)) (not (car-clear ?cardest)) (increase (total-cost) 1))))
