(define (problem hard)
  (:domain tyreworld)
  (:objects
    wrench1 - wrench
    jack1 - jack
    pump1 - pump
    flat1 spare1 - wheel
    nut1 nut2 - nut
    back-left front-left - hub
    boot1 - container)
  (:init
    (closed boot1) (unlocked boot1) (in wrench1 boot1) (in pump1 boot1) (in spare1 boot1) (intact spare1)
    (not-inflated spare1) (not-inflated flat1) (on flat1 back-left) (on-ground back-left) (fastened back-left)
    (tight nut1 back-left) (not-on-ground front-left) (under jack1 front-left) (unfastened front-left)
    (free front-left) (have nut2))
  (:goal (and
    (on spare1 back-left)
    (inflated spare1)
    (fastened back-left))))
