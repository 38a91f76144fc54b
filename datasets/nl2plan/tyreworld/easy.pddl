(define (problem easy)
  (:domain tyreworld)
  (:objects
    wrench1 - wrench
    jack1 - jack
    pump1 - pump
    flat1 spare1 - wheel
    nut1 - nut
    hub1 - hub)
  (:init
    (have wrench1) (have pump1) (under jack1 hub1) (have spare1) (have nut1) (intact spare1) (not-inflated spare1)
    (not-inflated flat1) (on flat1 hub1) (not-on-ground hub1) (unfastened hub1))
  (:goal (and
    (on spare1 hub1)
    (inflated spare1)
    (fastened hub1))))
