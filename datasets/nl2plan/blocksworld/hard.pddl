(define (problem hard)
  (:domain blocksworld)
  (:objects
    red1 red2 blue green1 green2 - block)
  (:init
    (handempty) (ontable red1) (on blue red1) (on green1 blue) (clear green1) (ontable green2) (on red2 green2)
    (clear red2))
  (:goal (and
    (or (and (on red2 red1) (on blue red2)) (and (on red1 red2) (on blue red1)))
    (or (and (on green1 blue) (on green2 green1)) (and (on green2 blue) (on green1 green2))))))
