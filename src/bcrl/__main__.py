from bcrl.cli import main

main()
