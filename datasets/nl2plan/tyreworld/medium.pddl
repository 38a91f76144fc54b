(define (problem medium)
  (:domain tyreworld)
  (:objects
    wrench1 - wrench
    jack1 - jack
    pump1 - pump
    flat1 spare1 - wheel
    nut1 - nut
    back-left - hub
    boot1 - container)
  (:init
    (have wrench1) (open boot1) (unlocked boot1) (in jack1 boot1) (in pump1 boot1) (in spare1 boot1) (intact spare1)
    (inflated spare1) (not-inflated flat1) (on flat1 back-left) (on-ground back-left) (fastened back-left)
    (tight nut1 back-left))
  (:goal (and
    (on spare1 back-left)
    (fastened back-left))))
