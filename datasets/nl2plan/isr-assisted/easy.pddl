(define (problem easy)
  (:domain isr-assisted)
  (:objects
    v1 v2 v3 v4 v5 v6 v7 v8 v9 - vertex)
  (:init
    (edge v1 v2) (edge v2 v1) (edge v2 v3) (edge v3 v2) (edge v3 v4) (edge v4 v3) (edge v4 v5) (edge v5 v4)
    (edge v5 v6) (edge v6 v5) (edge v6 v7) (edge v7 v6) (edge v7 v8) (edge v8 v7) (edge v7 v9) (edge v9 v7)
    (edge v9 v5) (edge v5 v9) (token v4) (token v6) (token v9))
  (:goal (and
    (token v3)
    (token v5)
    (token v7))))
