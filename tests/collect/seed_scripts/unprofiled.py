from network import Net, train

if __name__ == "__main__":
    train(Net())
