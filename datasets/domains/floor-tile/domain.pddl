; Floor-tile: robots paint the tiles above and below them and must not shut themselves in with paint.
(define (domain floor-tile)
  (:requirements :strips :typing)
  (:types robot tile color)
  (:predicates
    (robot-at ?r - robot ?x - tile)
    (up ?x ?y - tile)
    (down ?x ?y - tile)
    (right ?x ?y - tile)
    (left ?x ?y - tile)
    (clear ?x - tile)
    (painted ?x - tile ?c - color)
    (robot-has ?r - robot ?c - color)
    (available-color ?c - color))
  (:action change_color
    :parameters (?r - robot ?c ?c2 - color)
    :precondition (and (robot-has ?r ?c) (available-color ?c2))
    :effect (and (robot-has ?r ?c2) (not (robot-has ?r ?c))))
  (:action paint_up
    :parameters (?r - robot ?y ?x - tile ?c - color)
    :precondition (and (robot-at ?r ?x) (up ?y ?x) (clear ?y) (robot-has ?r ?c))
    :effect (and (painted ?y ?c) (not (clear ?y))))
  (:action paint_down
    :parameters (?r - robot ?y ?x - tile ?c - color)
    :precondition (and (robot-at ?r ?x) (down ?y ?x) (clear ?y) (robot-has ?r ?c))
    :effect (and (painted ?y ?c) (not (clear ?y))))
  (:action move_up
    :parameters (?r - robot ?x ?y - tile)
    :precondition (and (robot-at ?r ?x) (up ?y ?x) (clear ?y))
    :effect (and (robot-at ?r ?y) (clear ?x) (not (robot-at ?r ?x)) (not (clear ?y))))
  (:action move_down
    :parameters (?r - robot ?x ?y - tile)
    :precondition (and (robot-at ?r ?x) (down ?y ?x) (clear ?y))
    :effect (and (robot-at ?r ?y) (clear ?x) (not (robot-at ?r ?x)) (not (clear ?y))))
  (:action move_right
    :parameters (?r - robot ?x ?y - tile)
    :precondition (and (robot-at ?r ?x) (right ?y ?x) (clear ?y))
    :effect (and (robot-at ?r ?y) (clear ?x) (not (robot-at ?r ?x)) (not (clear ?y))))
  (:action move_left
    :parameters (?r - robot ?x ?y - tile)
    :precondition (and (robot-at ?r ?x) (left ?y ?x) (clear ?y))
    :effect (and (robot-at ?r ?y) (clear ?x) (not (robot-at ?r ?x)) (not (clear ?y)))))
